"""`ddas evaluate`: the scores of a training again, and those of another folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import metrics
from PIL import Image
from train_commands import FOLDER, train, write_both_sets

from ddas_gpu.__main__ import main


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    root = write_both_sets(folder / "images")
    assert train(*FOLDER, "--root", root, "--out", folder / "run") == 0
    return folder / "run"


def evaluate(*arguments) -> int:
    return main(["evaluate", *map(str, arguments), "--device", "cpu", "--threads", "1"])


def test_the_runs_own_test_is_repeated(run, capsys):
    assert evaluate(run) == 0
    told = capsys.readouterr().out
    last = metrics(run)[-1]
    assert told.startswith(f"test accuracy {last['test_accuracy']:.2%} on ")
    assert f"test_loss {last['test_loss']:.4f}" in told


def test_images_of_another_folder(run, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(run.parent / "images" / "test", other)
    for file in other.glob("*/*"):
        noise = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
        Image.fromarray(noise).save(file)
    assert evaluate(run, "--test-root", other) == 0
    told = capsys.readouterr().out
    count = len(list(other.glob("*/*")))
    assert f"on {count} images of {other}" in told
    assert f"test_loss {metrics(run)[-1]['test_loss']:.4f}" not in told


def test_what_cannot_be_tested(run, tmp_path, capsys):
    assert evaluate(run, "--weights", "best") == 2
    assert "it needs --val-share" in capsys.readouterr().err
    assert evaluate(tmp_path) == 2
    assert "config.json" in capsys.readouterr().err
    assert evaluate(run, "--test-root", tmp_path / "none") == 2
    assert "none" in capsys.readouterr().err


def test_weights_that_are_damaged_or_of_another_network(run, tmp_path, capsys):
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    good = (copy / "last.pt").read_bytes()
    other = {"class_names": torch.load(copy / "last.pt", weights_only=True)["class_names"]}
    for content, words in (
        (good[:-500], "does not hold the weights of a training"),
        (b"no weights", "does not hold the weights of a training"),
        (other, "does not hold the weights of a training"),
        (other | {"weights": {"a": torch.zeros(2)}}, "does not fit"),
    ):
        if isinstance(content, bytes):
            (copy / "last.pt").write_bytes(content)
        else:
            torch.save(content, copy / "last.pt")
        assert evaluate(copy) == 2
        told = capsys.readouterr().err
        assert words in told and told.count("\n") == 1
