"""The training command on a few digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import commands
from commands import Command, write_classes

from ddas_gpu.train.__main__ import PROGRAM, main
from ddas_gpu.train.loop import Training

# 4 steps per epoch, 8 in all.
TINY = (
    *("--epochs", "2", "--train-share", "0.03", "--test-share", "0.05", "--batch-size", "8"),
    *("--test-batch-size", "20", "--threads", "1", "--policy", "uniform"),
)
FOLDER = (
    *("--data", "folder", "--model", "small", "--image-size", "16", "--epochs", "2"),
    *("--batch-size", "4", "--test-batch-size", "5", "--policy", "uniform", "--threads", "1"),
)


def write_both_sets(root: Path) -> Path:
    """Images to train on and to test on."""
    write_classes(root / "train", count=6)
    write_classes(root / "test", count=3)
    return root


def results(folder: Path) -> dict[str, Any]:
    """All of a finished run that must be the same for the same settings."""
    return {
        "metrics": commands.metrics(folder),
        "checkpoint": commands.tensors(folder / "checkpoint.pt"),
        "last.pt": (folder / "last.pt").read_bytes(),
        "policy.json": (folder / "policy.json").read_bytes(),
    }


FILES = frozenset(
    {
        "last.pt",
        "checkpoint.pt",
        "config.json",
        "metrics.jsonl",
        "policy.json",
        "report.html",
        "samples.npz",
    }
)

train = Command(
    name="train",
    noun="training",
    program=PROGRAM,
    main=main,
    job=Training,
    tiny=TINY,
    folder=FOLDER,
    write_images=write_both_sets,
    files=FILES,
    result="last.pt",
    results=results,
)
start, refused, at_step = train.start, train.refused, train.at_step
