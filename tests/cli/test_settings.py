"""Settings of both commands: rules, flags of other tasks, presets, renamed flags."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from ddas_gpu.cli.parsing import RENAMED, with_new_names
from ddas_gpu.cli.rules import RULES, as_keywords, flag
from ddas_gpu.compare.__main__ import parse as parse_compare
from ddas_gpu.data.catalog import CATALOG
from ddas_gpu.search import settings as search
from ddas_gpu.search.__main__ import parse as parse_search
from ddas_gpu.tasks.facts import FACTS
from ddas_gpu.train import settings as train
from ddas_gpu.train.__main__ import parse as parse_train

COMMANDS = {"search": search.preset, "train": train.preset}
PARSERS = {"search": parse_search, "train": parse_train}

# Another value than any preset has, for each flag that only one task knows.
FOREIGN = {
    "anchor_scale": 3.5,
    "backbone": Path("weights.pth"),
    "classes": 3,
    "crop": "resized",
    "cutout": 5,
    "decode": "each",
    "drop_empty": True,
    "frozen_norm": True,
    "label_smoothing": 0.1,
    "padding": 3,
    "resize": "keep-ratio",
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("data", CATALOG)
@pytest.mark.parametrize(
    ("task", "name"), [(facts.name, name) for facts in FACTS.values() for name in facts.flags]
)
def test_a_flag_of_another_task_is_refused_by_both_commands(command, data, task, name):
    preset = COMMANDS[command](data)
    if name not in preset.to_json() or CATALOG[data].task == task:
        return
    with pytest.raises(ValueError) as refused:
        preset.replace(**{name: FOREIGN[name]}).check()
    assert str(refused.value) == f"{flag(name)} is for {task}, not for --data {data}"


def test_every_flag_of_a_task_is_one_of_a_command():
    known = search.SearchSettings().to_json() | train.TrainSettings().to_json()
    names = {name for facts in FACTS.values() for name in facts.flags}
    names |= {name for spec in CATALOG.values() for name in spec.flags}
    assert names <= known.keys()


def test_a_flag_of_another_data_set_is_refused():
    with pytest.raises(ValueError, match="--svhn-extra is for --data svhn, not for --data digits"):
        train.preset("digits").replace(svhn_extra=True).check()
    train.preset("svhn").replace(svhn_extra=True).check()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("data", CATALOG)
@pytest.mark.parametrize("scale", [1.0, 0.3, 0.01])
def test_every_preset_passes_its_own_check(command, data, scale):
    COMMANDS[command](data, scale=scale).check()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_number_has_a_rule_that_nan_breaks(command):
    rules = {name: rule for rule in RULES for name in rule.flags}
    assert len(rules) == sum(len(rule.flags) for rule in RULES), "a flag has two rules"
    settings = COMMANDS[command]("digits")
    groups = [getattr(settings, group.name) for group in dataclasses.fields(settings)]
    for field in (field for group in groups for field in dataclasses.fields(group)):
        if ("int" not in field.type and "float" not in field.type) or field.name == "ranks":
            continue
        if field.name == "levels":  # checked with the space
            continue
        several = field.type.startswith("tuple")
        assert not rules[field.name].holds((math.nan,) if several else math.nan), field.name


@pytest.mark.parametrize("command", COMMANDS)
def test_json_and_back(command):
    settings = COMMANDS[command]("coco").replace(root=Path("here"), lr_steps=(1, 2))
    assert type(settings).from_json(settings.to_json()) == settings
    with pytest.raises(ValueError, match="unknown setting 'no_such'"):
        settings.replace(no_such=1)


# A wrong value for each kind of type, and what was expected.
WRONG = {
    "epochs": (2.5, "a whole number, not 2.5"),
    "batch_size": ("8", "a whole number, not '8'"),
    "seed": (None, "a whole number, not None"),
    "workers": ("two", "a whole number, not 'two'"),
    "lr": ("0.1", "a finite number, not '0.1'"),
    "momentum": (math.inf, "a finite number, not inf"),
    "deterministic": ("no", "true or false, not 'no'"),
    "lr_steps": (4, "[a whole number, …], not 4"),
    "device": ("gpu0", "one of auto, cpu, cuda, not 'gpu0'"),
    "amp": (True, "one of auto, on, bf16, fp16, off, not True"),
    "crop": ("foo", "one of pad, resized, auto, not 'foo'"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", WRONG)
def test_a_value_of_another_type_or_choice_is_refused(command, name):
    value, expected = WRONG[name]
    with pytest.raises(ValueError) as refused:
        COMMANDS[command]("digits").replace(**{name: value}).check()
    assert str(refused.value) == f"{flag(name)} must be {expected}"


def test_lists_are_taken_as_tuples():
    listed = search.preset("digits").replace(levels=[4, 8], adam_betas=[0.5, 0.9])
    listed.check()
    assert listed == search.preset("digits").replace(levels=(4, 8), adam_betas=(0.5, 0.9))


@pytest.mark.parametrize("command", COMMANDS)
def test_threads_that_read_files_are_at_least_one(command):
    with pytest.raises(ValueError, match="--workers must be above 0, not 0"):
        COMMANDS[command]("imagenet").replace(workers=0).check()
    search.preset("custom").replace(workers=0, levels=()).check()  # in the search's own process


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("--levels (4, 8), not ()", "levels=(4, 8), not ()"),
        (
            "--batch-size 16 on 2 ranks, --train-images 3",
            "batch_size=16 on 2 ranks, train_images=3",
        ),
        ("try a smaller --lr than 0.05, or --amp off", "try a smaller lr than 0.05, or amp off"),
        ("--deterministic False, --resume", "deterministic=False, resume"),
        ("torchrun --max-restarts, a -- b and --", "torchrun --max-restarts, a -- b and --"),
    ],
)
def test_settings_in_messages_as_keywords(message, expected):
    assert as_keywords(message, search.SearchSettings.kinds()) == expected


OLD = {
    "search": {"--batch": 7, "--val-batch": 9},
    "train": {
        "--batch": 7,
        "--test-batch": 9,
        "--longest-gradient": 2.5,
        "--mixed-precision": "on",
    },
}


@pytest.mark.parametrize("separator", [" ", "="])
@pytest.mark.parametrize(
    ("command", "old", "value"),
    [(command, old, value) for command, flags in OLD.items() for old, value in flags.items()],
)
def test_renamed_flags_keep_working(command, old, value, separator):
    argv = f"{old}{separator}{value}".split()
    settings = PARSERS[command](with_new_names(argv))
    new = RENAMED[old].removeprefix("--").replace("-", "_")
    assert settings == COMMANDS[command]("digits").replace(**{new: value})


def test_only_flags_are_renamed():
    argv = ["--out", "batch", "--batch-size", "3", "--policy=--x=y"]
    assert with_new_names(argv) == argv
    assert with_new_names(["--val_batch", "3"]) == ["--val-batch-size", "3"]


@pytest.mark.parametrize("parse", [parse_search, parse_train, parse_compare])
def test_the_data_of_search_policy_are_no_choice_of_a_command(parse):
    with pytest.raises(ValueError, match="--data custom belongs to ddas_gpu.search_policy"):
        parse(["--data", "custom"])


def test_a_run_of_search_policy_is_resumed_in_python(tmp_path):
    run = search.preset("custom").replace(out=tmp_path, model="mine:Net", levels=(4.0,))
    config = {"version": 2, "command": "search", "settings": run.to_json()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"belongs to .*search_policy.*resume=True"):
        parse_search(["--resume", "--out", str(tmp_path)])
