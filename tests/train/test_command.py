"""The training command: what it writes, and what it says to bad input.

What it has in common with the search is in tests/cli/test_commands.py.
"""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import Killed, die, metrics, write_classes
from train_commands import (
    FILES,
    FOLDER,
    TINY,
    at_step,
    refused,
    results,
    train,
    write_both_sets,
)

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.models import build
from ddas_gpu.runs.run_folder import RunFolder, sealed, unsealed


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The folder of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert train(*TINY, "--out", folder) == 0
    return folder


# --- what the user gets ---------------------------------------------------------------------------


def test_the_policy_is_kept_in_the_run_folder(whole):
    assert PolicySchedule.load(whole / "policy.json").settings == {"baseline": "uniform"}


def test_a_line_of_metrics_per_epoch(whole):
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1]
    assert [line["step"] for line in lines] == [4, 8]
    assert set(lines[0]["seconds"]) == {"data", "training", "evaluation"}
    assert lines[0]["images"] == 32
    assert lines[0]["apply_probability"] == 0.35
    assert not [name for name in lines[1] if name.startswith("best")]


def test_the_last_weights_can_be_used_elsewhere(whole):
    content = torch.load(whole / "last.pt", weights_only=True)
    model = build(content["model"], len(content["class_names"]))
    model.load_state_dict(content["weights"])
    lines = metrics(whole)
    assert content["epoch"] == 1 and content["accuracy"] == lines[1]["test_accuracy"]
    assert content["image_size"] == 16


def test_validation_images_choose_the_best_weights(tmp_path, monkeypatch, capsys):
    flags = (*TINY, "--val-share", 0.2, "--out", tmp_path / "run")
    with monkeypatch.context() as patch:
        at_step(patch, 5, die)
        with pytest.raises(Killed):
            train(*flags)
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert "the best on the validation images" in capsys.readouterr().out
    content = torch.load(tmp_path / "run" / "best.pt", weights_only=True)
    lines = metrics(tmp_path / "run")
    validated = [line["val_accuracy"] for line in lines]
    assert content["val_accuracy"] == max(validated) == validated[content["epoch"]]
    assert content["accuracy"] == lines[content["epoch"]]["test_accuracy"]
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert f"epoch {content['epoch'] + 1}, best on validation images" in page


def test_a_checkpoint_with_a_best_test_is_still_resumed(tmp_path, monkeypatch):
    """As version 0.2.0 wrote them; the epoch that the test images chose is forgotten."""
    with monkeypatch.context() as patch:
        at_step(patch, 5, die)
        with pytest.raises(Killed):
            train(*TINY, "--out", tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.pt"
    state = unsealed(path.read_bytes(), path)
    del state["version"], state["training"]["last"]
    state["training"]["best"] = {"epoch": 0, "accuracy": 1.0}
    path.write_bytes(sealed(state))
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert not (tmp_path / "run" / "best.pt").exists()
    assert torch.load(tmp_path / "run" / "last.pt", weights_only=True)["epoch"] == 1


def test_epochs_that_are_not_tested_say_so_by_silence(tmp_path, capsys):
    assert train(*TINY, "--evaluate-every", 2, "--out", tmp_path / "run") == 0
    told = capsys.readouterr().err.splitlines()
    first, second = (line for line in told if line.startswith("epoch"))
    assert "test accuracy" not in first and "test accuracy" in second
    assert "test_accuracy" not in metrics(tmp_path / "run")[0]


def test_no_policy_leaves_no_policy_file(tmp_path):
    assert train(*TINY, "--policy", "none", "--out", tmp_path / "run") == 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES - {"policy.json"}
    assert metrics(tmp_path / "run")[0]["apply_probability"] == 0


def test_a_policy_is_replayed_epoch_by_epoch(tmp_path):
    space = SearchSpace.preset("digits")
    p_o = np.full((2, len(space)), 1 / len(space))
    PolicySchedule(space, [0.2, 0.6], p_o).save(tmp_path / "policy.json")
    flags = (*TINY, "--epochs", 4, "--policy", tmp_path / "policy.json")
    assert train(*flags, "--out", tmp_path / "run") == 0
    replayed = [line["apply_probability"] for line in metrics(tmp_path / "run")]
    assert replayed == [0.2, 0.2, 0.6, 0.6]
    assert train(*flags, "--static", "last", "--out", tmp_path / "static") == 0
    assert [line["apply_probability"] for line in metrics(tmp_path / "static")] == [0.6] * 4


def test_a_policy_can_be_named_by_its_run(whole, tmp_path):
    assert train(*TINY, "--policy", whole, "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


# --- stopping and going on ------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["write", "add_metrics", "save_checkpoint"])
def test_a_run_cut_at_the_end_of_an_epoch(whole, tmp_path, monkeypatch, place):
    """While the line of metrics or the checkpoint of the epoch is written, or last.pt."""
    with monkeypatch.context() as patch:
        real, calls = getattr(RunFolder, place), []

        def write(self, content):
            calls.extend([content] if content else [])
            if len(calls) == (1 if place == "write" else 2):
                raise Killed
            real(self, content)

        patch.setattr(RunFolder, place, write)
        with pytest.raises(Killed):
            train(*TINY, "--out", tmp_path / "run")
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


def test_a_resumed_run_keeps_its_policy_when_the_file_is_gone(whole, tmp_path, monkeypatch):
    policy = tmp_path / "policy.json"
    policy.write_bytes((whole / "policy.json").read_bytes())
    with monkeypatch.context() as patch:
        at_step(patch, 5, die)
        with pytest.raises(Killed):
            train(*TINY, "--policy", policy, "--out", tmp_path / "run")
    policy.unlink()
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


# --- bad input: one sentence, exit code 2, nothing left behind ------------------------------------


NUMBERS = {
    "--batch-size 37": "--batch-size 37 is larger than the set, which has 36 images",
    "--evaluate-every 0": "--evaluate-every must be above 0",
    "--model retinanet-r18": "is for detection, but --data digits is for classification",
    "--train-share 0": "--train-share is a share above 0",
    "--label-smoothing 1": "--label-smoothing lies in [0, 1)",
    "--moving-average 1": "--moving-average lies in [0, 1)",
    "--fixed-apply-probability 1.5": "--fixed-apply-probability lies in [0, 1]",
    "--policy none --static last": "--static needs a policy",
    "--clip-grad-norm -1": "--clip-grad-norm cannot be negative",
    "--longest-gradient -1": "--clip-grad-norm cannot be negative",
    "--svhn-extra": "--svhn-extra is for --data svhn",
    "--crop resized": "--crop resized is for image files",
    "--policy nowhere.json": "is neither a file nor one of none, uniform",
    "--policy released:moon": "no released policy 'moon'",
    "--policy released:cifar10": "the released policy of cifar10 is not in data/released_policies",
    "--policy randaugment --randaugment-level 31": "is a level from 0 to 30",
    "--model nowhere:build": "cannot import 'nowhere'",
}


@pytest.mark.parametrize(("flags", "reason"), NUMBERS.items())
def test_numbers_and_names_that_cannot_be(capsys, tmp_path, monkeypatch, flags, reason):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DDAS_DATA", raising=False)
    assert reason in refused(capsys, tmp_path, *TINY, *flags.split())


def good_policy() -> dict:
    space = SearchSpace.of(["Invert", "Rotate"], [5])
    return PolicySchedule(space, [0.5], [[0.25, 0.75]]).to_json()


POLICIES = {
    "not JSON": ("{", "is not JSON"),
    "no policy": ({}, "not a policy"),
    "another version": ({"version": 2}, "a policy of version 2"),
    "another K": ({"p_o": [[0.2, 0.3, 0.5]]}, "a space of 2 candidates"),
    "another op": ({"space": {"candidates": [["Twist"]]}}, "unknown op 'Twist'"),
    "not a number": ({"p_tp": [float("nan")]}, "a finite number"),
    "not a distribution": ({"p_o": [[0.2, 0.3]]}, "sums to 0.5"),
}


@pytest.mark.parametrize(("change", "reason"), POLICIES.values(), ids=POLICIES)
def test_policies_that_cannot_be(capsys, tmp_path, change, reason):
    path = tmp_path / "bad.json"
    content = change or {}
    if isinstance(change, dict):
        content = json.dumps(good_policy() | change if change else {})
    path.write_text(content)
    told = refused(capsys, tmp_path, *TINY, "--policy", path)
    assert reason in told and "bad.json" in told


def test_a_pickle_is_no_released_policy(capsys, tmp_path):
    (tmp_path / "x_cifar10_y.npy").write_bytes(pickle.dumps(print))
    flags = ("--policy", "released:cifar10", "--released-root", tmp_path)
    assert "is not an .npy file" in refused(capsys, tmp_path, *TINY, *flags)


def test_image_files_are_trained_on_and_resumed(tmp_path, monkeypatch):
    write_both_sets(tmp_path / "data")
    flags = (*FOLDER, "--root", tmp_path / "data", "--checkpoint-seconds", 0.0001)
    assert train(*flags, "--out", tmp_path / "whole") == 0
    with monkeypatch.context() as patch:
        at_step(patch, 4, die)  # in the middle of the second epoch
        with pytest.raises(Killed):
            train(*flags, "--out", tmp_path / "run")
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_classes_that_differ(capsys, tmp_path):
    write_classes(tmp_path / "data" / "train", count=6)
    write_classes(tmp_path / "data" / "val", classes="abc", count=6)
    told = refused(capsys, tmp_path, *FOLDER, "--root", tmp_path / "data")
    assert "the test images must have the same classes" in told and told.endswith("c")


def test_no_test_images(capsys, tmp_path):
    write_classes(tmp_path / "data", count=6)
    told = refused(capsys, tmp_path, *FOLDER, "--root", tmp_path / "data")
    assert "has no test images" in told and "--test-root" in told
    told = refused(
        capsys, tmp_path, *FOLDER, "--root", tmp_path / "data", "--test-root", tmp_path / "no"
    )
    assert "no folder" in told


def test_unreadable_image_files(capsys, tmp_path):
    write_both_sets(tmp_path / "data")
    broken = tmp_path / "data" / "train" / "b" / "3.png"
    broken.write_bytes(broken.read_bytes()[:50])
    told = refused(capsys, tmp_path, *FOLDER, "--root", tmp_path / "data")
    assert "3.png" in told and "--bad-files skip" in told


def test_unreadable_image_files_can_be_skipped(tmp_path):
    write_both_sets(tmp_path / "data")
    (tmp_path / "data" / "train" / "b" / "3.png").write_bytes(b"")
    flags = (*FOLDER, "--root", tmp_path / "data", "--bad-files", "skip", "--out", tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="3.png"):
        assert train(*flags) == 0
    assert metrics(tmp_path / "run")[0]["images"] == 8  # of 11, in batches of 4


def test_the_checkpoint_of_another_model(whole, capsys, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    config.write_bytes(config.read_bytes().replace(b'"small"', b'"wrn-10-1"'))
    assert train("--resume", "--out", tmp_path / "run") == 2
    assert "the checkpoint is not one of the model wrn-10-1" in capsys.readouterr().err


def test_a_resumed_run_without_its_policy_is_refused(whole, capsys, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "policy.json").unlink()
    assert train("--resume", "--out", tmp_path / "run") == 2
    assert "policy.json is missing" in capsys.readouterr().err


def test_a_run_that_augments_nothing_is_resumed(tmp_path, monkeypatch):
    flags = (*TINY, "--policy", "none")
    with monkeypatch.context() as patch:
        at_step(patch, 5, die)
        with pytest.raises(Killed):
            train(*flags, "--out", tmp_path / "run")
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert train(*flags, "--out", tmp_path / "whole") == 0
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")


def test_a_resumed_run_keeps_its_policy(whole, capsys):
    assert train("--resume", "--out", whole, "--policy", "none") == 2
    assert "was started with --policy uniform, not none" in capsys.readouterr().err
