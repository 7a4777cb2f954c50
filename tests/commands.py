"""Running a command on little data, in this process or in one of its own, and cutting it short.

`search_commands` and `train_commands` say which command.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ddas_gpu import files, ops


def call(main: Callable[[list[str]], int], *flags: object) -> int:
    """The exit code of a command with these flags."""
    threads = torch.get_num_threads(), ops.get_num_threads()
    try:
        return main([str(flag) for flag in flags])
    except SystemExit as stop:  # tyro's way out
        return stop.code
    finally:  # --threads is for the whole process
        torch.set_num_threads(threads[0])
        ops.set_num_threads(threads[1])


def start(command: str, *flags: object) -> subprocess.Popen[str]:
    """`python -m ddas_gpu.COMMAND` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", f"ddas_gpu.{command}", *map(str, flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path.cwd(),
    )


def refusal(
    command: Callable[..., int], program: str, capsys: Any, tmp_path: Path, *flags: object
) -> str:
    """The one sentence; checks that it is one, and that there is no trace of a run."""
    out = tmp_path / "refused" / "run"
    assert command(*flags, "--out", out) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "Traceback" not in told.err
    lines = told.err.strip().splitlines()
    assert len(lines) == 1, told.err
    assert lines[0].startswith(f"{program}: ")
    assert not out.parent.exists()
    return lines[0]


def metrics(folder: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the times, the one thing that may differ between equal runs."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"]
    return lines


def tensors(path: Path) -> list[bytes]:
    """All tensors of a file, in its order."""
    content = torch.load(path, weights_only=True)
    leaves = torch.utils._pytree.tree_leaves(content)
    return [leaf.numpy().tobytes() for leaf in leaves if torch.is_tensor(leaf)]


class Killed(BaseException):
    """Stands for kill -9: nothing in the program catches it, only what is on the disk survives."""


def die() -> None:
    raise Killed


def before_step(monkeypatch: Any, kind: type, number: int, action: Callable[[], None]) -> None:
    """Do something when a search or a training begins a step."""
    real = kind.step

    def step(self):
        if self.steps == number:
            action()
        return real(self)

    monkeypatch.setattr(kind, "step", step)


def full_disk(monkeypatch: Any, after: int) -> None:
    """Every write but the first few finds the disk full when it is to be made permanent."""
    real, count = os.fsync, 0

    def fsync(descriptor):
        nonlocal count
        count += 1
        if count > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(files.os, "fsync", fsync)
