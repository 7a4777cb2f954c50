"""The training command on a few digits."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import commands

from ddas_gpu.train.__main__ import PROGRAM, main
from ddas_gpu.train.loop import Training

# 4 steps an epoch, 8 in all.
TINY = [
    *"--epochs 2 --train-share 0.03 --test-share 0.05 --batch 8 --test-batch 20".split(),
    *"--threads 1 --policy uniform".split(),
]

train = partial(commands.call, main)
start = partial(commands.start, "train")
refused = partial(commands.refusal, train, PROGRAM)


def at_step(monkeypatch: Any, number: int, action: Any) -> None:
    commands.before_step(monkeypatch, Training, number, action)


def results(folder: Path) -> dict[str, Any]:
    """All of a finished run that must be the same for the same settings."""
    return {
        "metrics": commands.metrics(folder),
        "checkpoint": commands.tensors(folder / "checkpoint.pt"),
        "best": (folder / "best.pt").read_bytes(),
        "policy": (folder / "policy.json").read_bytes(),
    }
