"""The search command on a few digits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import commands
import torch
from commands import Command

from ddas_gpu.search.__main__ import PROGRAM, main
from ddas_gpu.search.algorithm import Search

# 4 steps per epoch, 8 in all; one thread, because batches this small are slower on more.
TINY = (
    *("--epochs", "2", "--train-images", "32", "--val-images", "40", "--batch-size", "8"),
    *("--val-batch-size", "20", "--policies", "3", "--threads", "1", "--warmup-epochs", "0"),
)
FOLDER = (*TINY, "--data", "folder", "--model", "small", "--image-size", "16")


def results(folder: Path) -> dict[str, Any]:
    """All of a finished run that must be the same for the same settings."""
    checkpoint = folder / "checkpoint.pt"
    return {
        "policy.json": (folder / "policy.json").read_bytes(),
        "metrics": commands.metrics(folder),
        "tensors": commands.tensors(checkpoint),
        "steps": torch.load(checkpoint, weights_only=True)["search"]["steps"],
    }


FILES = frozenset(
    {
        "checkpoint.pt",
        "config.json",
        "metrics.jsonl",
        "policy.json",
        "report.html",
        "samples.npz",
        "split.json",
    }
)

search = Command(
    name="search",
    noun="search",
    program=PROGRAM,
    main=main,
    job=Search,
    tiny=TINY,
    folder=FOLDER,
    write_images=commands.write_classes,
    files=FILES,
    result="policy.json",
    results=results,
)
start, refused, at_step = search.start, search.refused, search.at_step
