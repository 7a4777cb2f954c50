"""The folder of a run: what is in it, and who may write to it."""

from __future__ import annotations

import fcntl
import io
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from ddas_gpu.cli.grouped_settings import GroupedSettings
from ddas_gpu.data import DataSet
from ddas_gpu.files import write_atomically
from ddas_gpu.policy import versions

if TYPE_CHECKING:
    from typing import Self

    from ddas_gpu.data.file_set import FileSet
    from ddas_gpu.detection import DetectionSet

    Images = DataSet | FileSet | DetectionSet

CONFIG, POLICY, METRICS = "config.json", "policy.json", "metrics.jsonl"
CHECKPOINT, SAMPLES = "checkpoint.pt", "samples.npz"
CHECKPOINT_VERSION = 1
NOUNS = {"search": "search", "train": "training"}  # for what a command does

Settings = TypeVar("Settings", bound=GroupedSettings)


def read_config(folder: Path, command: str, kind: type[Settings]) -> Settings:
    """The settings of the run of `command` in `folder`."""
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder} holds no run to resume: it has no {CONFIG}")
    try:
        content = json.loads(path.read_bytes())
        if content["command"] != command or content["version"] != 1:
            raise ValueError(f"a {content['command']} of version {content['version']}")
        return kind.from_json(content["settings"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        noun = NOUNS[command]
        raise ValueError(f"{path} is not the configuration of a {noun}: {error}") from None


class RunFolder:
    """A run's folder, held by this process alone, or by rank 0 for all.

    The lock is on config.json, and the system lets go of it even if the process is killed. Other
    ranks have it with writes=False: what they are told to write, rank 0 writes.
    """

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self._metrics: IO[bytes] | None = None
        self._lock: IO[bytes] | None = None
        if not writes:
            if not (path / CONFIG).exists():
                raise ValueError(f"{path} cannot be seen here: --out must be on a shared disk")
            return
        self._lock = open(path / CONFIG, "rb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ValueError(f"another process is working on {path}") from None

    @classmethod
    def begin(
        cls, command: str, settings: GroupedSettings, images: Images, write: Callable[[Path], None]
    ) -> Self:
        """A new folder, at --out or at the next free runs/DATA-NUMBER; `write` adds what else the
        command begins with. If anything goes wrong there is no folder."""
        path = _new_folder(settings)
        try:
            config = {
                "version": 1,
                "command": command,
                "settings": settings.to_json(),
                "versions": versions(),
            }
            text = json.dumps(config, indent=2, ensure_ascii=False)
            write_atomically(path / CONFIG, f"{text}\n".encode())
            write_atomically(path / SAMPLES, _samples(images))
            write(path)
            return cls(path)
        except BaseException:
            shutil.rmtree(path)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._metrics, self._lock):
            if file is not None:
                file.close()

    def start_metrics(self, steps: int) -> None:
        """Keep the lines of the first `steps` steps, and append from there on.

        Steps after the last checkpoint are done again; their lines would be there twice.
        """
        if not self.writes:
            return
        path = self.path / METRICS
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if len(lines) < steps:
            raise ValueError(f"{path} has {len(lines)} lines, but {steps} steps were done")
        if len(lines) > steps:
            write_atomically(path, b"".join(lines[:steps]))
        self._metrics = open(path, "ab")

    def add_metrics(self, metrics: dict[str, Any]) -> None:
        """One line; it reaches the system at once, so a killed process does not lose it."""
        if self._metrics is None:
            return
        self._metrics.write(json.dumps(metrics).encode() + b"\n")
        self._metrics.flush()

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
        """The last checkpoint; None if the run was stopped before the first."""
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


def _new_folder(settings: GroupedSettings) -> Path:
    path = settings.run.out
    if path is None:
        for number in itertools.count(1):
            path = Path("runs") / f"{settings.data.data}-{number}"
            try:
                path.mkdir(parents=True)
                return path
            except FileExistsError:
                continue
    check_free(path)
    path.mkdir(parents=True, exist_ok=True)
    return path


def check_free(path: Path) -> None:
    """A ValueError if a new run must not be written to `path`."""
    if (path / CONFIG).exists():
        raise ValueError(
            f"{path} already holds a run: add --resume to go on with it, or name another --out"
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} exists and is not an empty folder: name another --out")


def _samples(train: Images, count: int = 8) -> bytes:
    """Up to eight clean training images, evenly spread, for the report."""
    indices = np.linspace(0, len(train) - 1, min(count, len(train))).astype(int)
    batch = train.batch(indices, np.random.default_rng(0))
    if isinstance(batch, tuple):  # with boxes
        from ddas_gpu.detection.samples import sample_arrays

        arrays = sample_arrays(batch, train.class_names)
    else:
        labels = train.labels[indices]
        names = np.array([train.class_names[label] for label in labels])
        arrays = {"images": torch.as_tensor(batch).cpu(), "labels": labels, "names": names}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()
