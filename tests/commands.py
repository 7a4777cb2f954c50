"""Running a command on little data, in this process or in one of its own, and cutting it short.

`search_commands` and `train_commands` have a `Command` each, for the tests of both.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from ddas_gpu import files, ops


@dataclass(frozen=True)
class Command:
    """A command that runs a job, with flags for a run of 8 steps in 2 epochs."""

    name: str
    noun: str  # for what it does, in messages; its part of the checkpoint
    program: str
    main: Callable[[list[str]], int]
    job: type  # whose `step` is called for every step
    tiny: tuple[str, ...]
    folder: tuple[str, ...]  # on images in a folder that `write_images` wrote
    write_images: Callable[[Path], Path]
    files: frozenset[str]  # in the folder of a finished run
    result: str  # the file of them that another seed must change
    results: Callable[[Path], dict[str, Any]]

    def __call__(self, *flags: object) -> int:
        """Return the exit code with these flags."""
        return call(self.main, *flags)

    def start(self, *flags: object) -> subprocess.Popen[str]:
        """Start `python -m ddas_gpu.NAME` in a process of its own."""
        return start(self.name, *flags)

    def refused(self, capsys: Any, tmp_path: Path, *flags: object) -> str:
        """Return the one sentence that refuses these flags."""
        return refusal(self, self.program, capsys, tmp_path, *flags)

    def at_step(self, monkeypatch: Any, number: int, action: Callable[[], None]) -> None:
        """Do something when the run begins a step."""
        before_step(monkeypatch, self.job, number, action)


def write_classes(root: Path, classes: str = "ab", count: int = 40) -> Path:
    """One folder of images per class."""
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (20, 18), (number, ord(name), 0)).save(root / name / f"{number}.png")
    return root


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
