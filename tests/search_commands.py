"""The search command on a few digits."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import commands
import torch

from ddas_gpu.search.__main__ import PROGRAM, main
from ddas_gpu.search.algorithm import Search

# 4 steps an epoch, 8 in all; one thread, because batches this small are slower on more.
TINY = (
    "--epochs 2 --train-images 32 --val-images 40 --batch 8 --val-batch 20 --policies 3 --threads 1"
).split()

search = partial(commands.call, main)
start = partial(commands.start, "search")
refused = partial(commands.refusal, search, PROGRAM)


def at_step(monkeypatch: Any, number: int, action: Any) -> None:
    commands.before_step(monkeypatch, Search, number, action)


def results(folder: Path) -> dict[str, Any]:
    """All of a finished run that must be the same for the same settings."""
    checkpoint = folder / "checkpoint.pt"
    return {
        "policy": (folder / "policy.json").read_bytes(),
        "metrics": commands.metrics(folder),
        "tensors": commands.tensors(checkpoint),
        "steps": torch.load(checkpoint, weights_only=True)["search"]["steps"],
    }
