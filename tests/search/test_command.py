"""The search command: what it writes, and what it says to bad input.

What it has in common with the training is in tests/cli/test_commands.py.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from commands import Killed, die, metrics, write_classes
from search_commands import FOLDER, TINY, at_step, refused, results, search

from ddas_gpu import PolicySchedule


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The folder of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert search(*TINY, "--out", folder) == 0
    return folder


# --- what the user gets ---------------------------------------------------------------------------


def test_the_split_is_listed(whole):
    split = json.loads((whole / "split.json").read_text())
    settings = json.loads((whole / "config.json").read_text())["settings"]
    assert len(split["train"]) == settings["train_images"]
    assert len(split["validation"]) == settings["val_images"]
    assert not set(split["train"]) & set(split["validation"])


def test_the_policy(whole):
    schedule = PolicySchedule.load(whole / "policy.json")
    assert len(schedule) == 2
    assert schedule.settings["seed"] == 0
    assert schedule.settings["image_size"] == 16
    assert not {"out", "resume", "timeout"} & schedule.settings.keys()


def test_a_line_of_metrics_per_step(whole):
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(8))
    assert [line["epoch"] for line in lines] == [0] * 4 + [1] * 4
    assert set(lines[0]["seconds"]) == {
        *("data", "augment", "gradients", "validation", "dot", "update")
    }
    assert lines[0]["images"] == 4 * 8 + 20
    last = PolicySchedule.load(whole / "policy.json").p_tp
    assert last[-1] == pytest.approx(
        (lines[3]["apply_probability"] + lines[7]["apply_probability"]) / 2
    )


def test_samples_for_the_report(whole):
    with np.load(whole / "samples.npz") as samples:
        assert samples["images"].shape == (8, 16, 16, 3)
        assert samples["images"].dtype == np.uint8
        assert [int(name) for name in samples["names"]] == samples["labels"].tolist()


@pytest.mark.parametrize("method", ["fast", "lean", "reference", "jvp", "layerwise"])
def test_all_ways_to_compare_gradients_agree(whole, tmp_path, method):
    assert search(*TINY, "--gradients", method, "--out", tmp_path / "run") == 0
    for ours, theirs in zip(metrics(whole), metrics(tmp_path / "run"), strict=True):
        assert ours["policies"] == theirs["policies"]
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)


def test_a_space_of_ones_own(tmp_path):
    space = {"ops": ["Invert", "Rotate"], "levels": [3, 9], "depth": 1}
    (tmp_path / "space.json").write_text(json.dumps(space))
    flags = ("--space", tmp_path / "space.json", "--out", tmp_path / "run")
    assert search(*TINY, *flags) == 0
    found = PolicySchedule.load(tmp_path / "run" / "policy.json").space
    assert [str(candidate) for candidate in found] == ["Invert", "Rotate 3", "Rotate 9"]
    assert found.depth == 1


def test_a_space_by_name(tmp_path):
    assert search(*TINY, "--space", "camera", "--levels", 6, "--out", tmp_path / "run") == 0
    found = PolicySchedule.load(tmp_path / "run" / "policy.json").space
    assert (len(found), str(found[-1])) == (8 + 15, "Warmth 6")


def test_photographs_from_a_folder(imagenet_root, tmp_path):
    """Images of all sizes, and a validation set from another folder."""
    photographs = sorted((imagenet_root / "train").rglob("*.JPEG"))
    for number, path in enumerate(photographs[:176]):
        folder = tmp_path / ("here" if number < 88 else "there") / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / path.name).symlink_to(path)
    roots = ("--root", tmp_path / "here", "--val-root", tmp_path / "there")
    assert search(*FOLDER, *roots, "--out", tmp_path / "run") == 0
    assert len(metrics(tmp_path / "run")) == 8


# --- bad input: one sentence, exit code 2, nothing left behind ------------------------------------


def test_a_root_that_is_not_there(capsys, tmp_path):
    assert "no folder nowhere" in refused(capsys, tmp_path, *FOLDER, "--root", "nowhere")


def test_wrong_layout(capsys, tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("cifar10", "imagenet", "folder"):
        told = refused(capsys, tmp_path, "--data", name, "--root", tmp_path / "data")
        assert "ROOT/CLASS/IMAGE.jpg" in told
    assert "train_32x32.mat" in refused(
        capsys, tmp_path, "--data", "svhn", "--root", tmp_path / "data"
    )


@pytest.mark.parametrize("damage", ["cut", "empty"])
def test_unreadable_image(capsys, tmp_path, damage):
    root = write_classes(tmp_path / "data", count=40)
    for image in (root / "b").iterdir():  # all: whichever are drawn
        image.write_bytes(image.read_bytes()[:50] if damage == "cut" else b"")
    told = refused(capsys, tmp_path, *FOLDER, "--root", root)
    assert "36 unreadable images" in told and "--bad-files skip" in told and "ddas scan" in told


def test_class_with_too_few_images(capsys, tmp_path):
    root = write_classes(tmp_path / "data", count=200)
    for image in sorted((root / "b").iterdir())[1:]:
        image.unlink()
    told = refused(capsys, tmp_path, *FOLDER, "--root", root)
    assert "class 'b' has too few images, 1" in told


def test_too_few_images_and_classes(capsys, tmp_path):
    root = write_classes(tmp_path / "data", count=10)
    assert "32 + 40 images are wanted, but there are only 20" in refused(
        capsys, tmp_path, *FOLDER, "--root", root
    )
    assert "5 classes are wanted" in refused(
        capsys, tmp_path, *FOLDER, "--root", root, "--classes", 5
    )


def test_validation_folder_with_other_classes(capsys, tmp_path):
    root = write_classes(tmp_path / "data")
    other = write_classes(tmp_path / "other", classes="ac")
    told = refused(capsys, tmp_path, *FOLDER, "--root", root, "--val-root", other)
    assert "same classes" in told


def test_pickle_that_wants_to_run_code(capsys, tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "batches.meta"):
        (root / name).write_bytes(pickle.dumps(print))
    told = refused(capsys, tmp_path, "--data", "cifar10", "--root", root)
    assert "does not hold the published cifar10 batches" in told


SPACES = {
    "{": "is not JSON",
    '{"ops": ["Twist"]}': "unknown op 'Twist'",
    '{"ops": ["Rotate"]}': "Rotate has a magnitude",
    '{"ops": ["Rotate"], "levels": [99]}': "level from 0 to 30",
    "[]": "a search space is written",
    '{"candidates": []}': "at least one candidate",
}


@pytest.mark.parametrize(("content", "reason"), SPACES.items())
def test_bad_spaces(capsys, tmp_path, content, reason):
    (tmp_path / "space.json").write_text(content)
    assert reason in refused(capsys, tmp_path, *TINY, "--space", tmp_path / "space.json")


def test_a_space_has_its_own_levels(capsys, tmp_path):
    (tmp_path / "space.json").write_text('{"ops": ["Invert"]}')
    told = refused(capsys, tmp_path, *TINY, "--space", tmp_path / "space.json", "--levels", 3)
    assert "--levels is for the presets" in told


NUMBERS = {
    "--batch-size 33": "--batch-size 33 is larger than the set, --train-images 32",
    "--val-batch-size 41": "--val-batch-size 41 is larger than the set, --val-images 40",
    "--policies 0": "--policies must be above 0",
    "--depth 0": "--depth must be above 0",
    "--apply-probability 1": "--apply-probability lies between 0 and 1",
    "--adam-betas 0.5 1": "--adam-betas lie in [0, 1)",
    "--levels 31": "level from 0 to 30",
    "--model what": "unknown model 'what'",
    "--train-images 2000": "2000 + 40 images are wanted, but there are only 1200",
    "--space missing.json": "missing.json",
    "--space missing": "unknown space 'missing'; there are: digits",
    "--space coco": "BBox_Cutout needs boxes",
}


@pytest.mark.parametrize(("flags", "reason"), NUMBERS.items())
def test_numbers_and_names_that_cannot_be(capsys, tmp_path, flags, reason):
    assert reason in refused(capsys, tmp_path, *TINY, *flags.split())


@pytest.mark.parametrize("cut", [1, 4, 6])
def test_a_warm_up_leaves_the_policy_alone_and_resumes_to_the_same_bytes(
    tmp_path, monkeypatch, cut
):
    flags = (*TINY, "--warmup-epochs", 1)
    assert search(*flags, "--out", tmp_path / "whole") == 0
    whole = results(tmp_path / "whole")
    assert [line["step"] for line in whole["metrics"]] == list(range(8)) and whole["steps"] == 12
    assert whole["metrics"][0]["epoch"] == 0 and len(PolicySchedule.load(tmp_path / "whole")) == 2
    with monkeypatch.context() as patch:
        at_step(patch, cut, die)
        with pytest.raises(Killed):
            search(*flags, "--out", tmp_path / "cut", "--checkpoint-seconds", 0.0001)
    assert search("--resume", "--out", tmp_path / "cut") == 0
    assert results(tmp_path / "cut") == whole
