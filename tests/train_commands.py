"""Running the training command on a few digits, in this process or in one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from ddas_gpu import ops
from ddas_gpu.train import main
from ddas_gpu.training import Training

# 4 steps an epoch, 8 in all.
TINY = [
    *"--epochs 2 --train-share 0.03 --test-share 0.05 --batch 8 --test-batch 20".split(),
    *"--threads 1 --policy uniform".split(),
]


def train(*flags: object) -> int:
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
    command = [sys.executable, "-m", "ddas_gpu.train", *(str(flag) for flag in flags)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path.cwd()
    )


def metrics(folder: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the times, the one thing that may differ between equal runs."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    epochs = [json.loads(line) for line in lines]
    for epoch in epochs:
        del epoch["seconds"]
    return epochs


def tensors(path: Path) -> list[bytes]:
    content = torch.load(path, weights_only=True)
    leaves = torch.utils._pytree.tree_leaves(content)
    return [leaf.numpy().tobytes() for leaf in leaves if torch.is_tensor(leaf)]


def results(folder: Path) -> dict[str, Any]:
    """All of a finished run that must be the same for the same settings."""
    return {
        "metrics": metrics(folder),
        "checkpoint": tensors(folder / "checkpoint.pt"),
        "best": (folder / "best.pt").read_bytes(),
        "policy": (folder / "policy.json").read_bytes(),
    }


class Killed(BaseException):
    """Like kill -9: nothing in the program catches it."""


def at_step(monkeypatch, number: int, action) -> None:
    """Do something at the start of a step."""
    real = Training.step

    def step(self):
        if self.steps == number:
            action()
        return real(self)

    monkeypatch.setattr(Training, "step", step)


def die():
    raise Killed
