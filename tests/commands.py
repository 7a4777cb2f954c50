"""Running the search command on a few digits, in this process or in one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from ddas_gpu import ops
from ddas_gpu.search import main

# 4 steps an epoch, 8 in all; one thread, because batches this small are slower on more.
TINY = (
    "--epochs 2 --train-images 32 --val-images 40 --batch 8 --val-batch 20 --policies 3 --threads 1"
).split()


def search(*flags: object) -> int:
    """The exit code of the command with these flags."""
    threads = torch.get_num_threads(), ops.get_num_threads()
    try:
        return main([str(flag) for flag in flags])
    except SystemExit as stop:  # tyro's way out
        return stop.code
    finally:  # --threads is for the whole process
        torch.set_num_threads(threads[0])
        ops.set_num_threads(threads[1])


def start(*flags: object) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "ddas_gpu.search", *(str(flag) for flag in flags)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path.cwd()
    )


def metrics(folder: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the times, the one thing that may differ between equal runs."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    for step in steps:
        del step["seconds"]
    return steps


def results(folder: Path) -> dict[str, Any]:
    """All of a finished run that must be the same for the same settings."""
    checkpoint = torch.load(folder / "checkpoint.pt", weights_only=True)
    tensors = [v for v in torch.utils._pytree.tree_leaves(checkpoint) if torch.is_tensor(v)]
    return {
        "policy": (folder / "policy.json").read_bytes(),
        "metrics": metrics(folder),
        "tensors": [tensor.numpy().tobytes() for tensor in tensors],
        "steps": checkpoint["search"]["steps"],
    }
