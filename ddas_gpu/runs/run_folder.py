"""The folder of a run: what is in it, and who may write to it."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from ddas_gpu.files import write_atomically
from ddas_gpu.policy import PolicySchedule, versions
from ddas_gpu.runs.job import Files, Metrics
from ddas_gpu.runs.tensorboard import Curves

CONFIG, POLICY, METRICS, CHECKPOINT = "config.json", "policy.json", "metrics.jsonl", "checkpoint.pt"
SAMPLES = "samples.npz"
CONFIG_VERSION = 2
CHECKPOINT_VERSION = 1


def read_config(folder: Path, command: str, name: str) -> dict[str, Any]:
    """Return the settings of the run of `command` in `folder`; `name` is for messages."""
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder} holds no run to resume: it has no {CONFIG}")
    try:
        content = json.loads(path.read_bytes())
        made_by, version = content["command"], content["version"]
        settings = dict(content["settings"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is not the configuration of a {name}: {error}") from None
    if made_by != command:
        raise ValueError(f"{path} is not the configuration of a {name} but of a {made_by}")
    if version == 1:
        raise ValueError(
            f"the run in {folder} was made by ddas_gpu 0.1 and can only be resumed by that; "
            f"its {POLICY} can still be used"
        )
    if version != CONFIG_VERSION:
        raise ValueError(f"{path} is not the configuration of a {name} but of version {version}")
    return settings


def archive(arrays: dict[str, Any]) -> bytes:
    """Return arrays as the content of an .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def read_schedule(folder: Path) -> PolicySchedule | None:
    """Return the schedule that the training in `folder` began with."""
    path = folder / POLICY
    return PolicySchedule.load(path) if path.exists() else None


class RunFolder:
    """A run's folder, held by this process alone, or by rank 0 for all.

    The lock is on config.json, and the system releases it even if the process is killed. Other
    ranks have it with writes=False: their writes are no-ops.
    """

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self._metrics: IO[bytes] | None = None
        self._lines = 0
        self._curves: Curves | None = None
        self._lock: IO[bytes] | None = None
        if not writes:
            self.require_visible()
            return
        self._lock = open(path / CONFIG, "rb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ValueError(f"another process is working on {path}") from None

    def require_visible(self) -> None:
        """Raise a ValueError where a rank does not see the folder of rank 0."""
        if not (self.path / CONFIG).exists():
            raise ValueError(f"{self.path} cannot be seen here: --out must be on a shared disk")

    @classmethod
    def create(
        cls,
        path: Path | None,
        data: str,
        command: str,
        task: str,
        settings: dict[str, Any],
        files: Files,
    ) -> RunFolder:
        """Create a folder at `path`, or at the next free runs/DATA-NUMBER.

        config.json and `files` are in it. If anything goes wrong there is no folder.
        """
        path = _new_folder(path, data)
        try:
            config = {
                "version": CONFIG_VERSION,
                "command": command,
                "task": task,
                "settings": settings,
                "versions": versions(),
            }
            text = json.dumps(config, indent=2, ensure_ascii=False)
            write_atomically(path / CONFIG, f"{text}\n".encode())
            for name, content in files.items():
                write_atomically(path / name, content)
            return cls(path)
        except BaseException:
            shutil.rmtree(path)
            raise

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._metrics, self._curves, self._lock):
            if file is not None:
                file.close()

    def write(self, files: Files) -> None:
        """Replace files, each atomically."""
        if not self.writes:
            return
        for name, content in files.items():
            write_atomically(self.path / name, content)

    def start_metrics(self, done: int, tensorboard: bool = False) -> None:
        """Keep the first `done` lines, and append from there on; as curves as well if wanted.

        Steps after the last checkpoint are done again; their lines would be there twice.
        """
        if not self.writes:
            return
        path = self.path / METRICS
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if len(lines) < done:
            raise ValueError(
                f"{path} has {len(lines)} lines, but the checkpoint comes after {done}"
            )
        if len(lines) > done:
            write_atomically(path, b"".join(lines[:done]))
        self._metrics, self._lines = open(path, "ab"), done
        self._curves = Curves(self.path, done) if tensorboard else None

    def add_metrics(self, metrics: Metrics | None) -> None:
        """Append a line, if there is one; it is flushed, so a killed process does not lose it."""
        if self._metrics is None or metrics is None:
            return
        self._metrics.write(json.dumps(metrics).encode() + b"\n")
        self._metrics.flush()
        if self._curves is not None:
            self._curves.add(self._lines, metrics)
        self._lines += 1

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint by `state`, once the metrics up to it are on the disk."""
        if not self.writes:
            return
        if self._metrics is not None:
            os.fsync(self._metrics.fileno())
        buffer = io.BytesIO()
        torch.save({"version": CHECKPOINT_VERSION, **state}, buffer)
        write_atomically(self.path / CHECKPOINT, buffer.getvalue())

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Return the last checkpoint; None if the run was stopped before the first."""
        path = self.path / CHECKPOINT
        if not path.exists():
            return None
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            version = state["version"]
        # torch.load raises whatever the damaged bytes lead it to
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f"{path} is not a checkpoint of this program: {reason}") from None
        if version != CHECKPOINT_VERSION:
            raise ValueError(
                f"{path} is of version {version!r}; this program reads {CHECKPOINT_VERSION}"
            )
        return state


class NoFolder(RunFolder):
    """Keeps nothing: for a run from Python that names no folder."""

    def __init__(self) -> None:
        super().__init__(Path("memory only"), writes=False)

    def require_visible(self) -> None:
        return

    def load_checkpoint(self) -> None:
        return None


def _new_folder(path: Path | None, data: str) -> Path:
    if path is not None:
        check_free(path)
        path.mkdir(parents=True, exist_ok=True)
        return path
    number = 1
    while True:
        free = Path("runs") / f"{data}-{number}"
        try:
            free.mkdir(parents=True)
            return free
        except FileExistsError:
            number += 1


def check_free(path: Path) -> None:
    """Raise a ValueError if a new run must not be written to `path`."""
    if (path / CONFIG).exists():
        raise ValueError(
            f"{path} already holds a run: add --resume to go on with it, or name another --out"
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} exists and is not an empty folder: name another --out")
