"""The folder of a run: what is in it, and who may write to it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from ddas_gpu.files import is_temporary, write_atomically
from ddas_gpu.policy import PolicySchedule, versions
from ddas_gpu.runs.job import Files, Metrics
from ddas_gpu.runs.tensorboard import Curves
from ddas_gpu.schema import check, read_json

CONFIG, POLICY, METRICS, CHECKPOINT = "config.json", "policy.json", "metrics.jsonl", "checkpoint.pt"
SAMPLES, SPLIT = "samples.npz", "split.json"
FIRST_FILES = (SAMPLES, SPLIT, POLICY)  # before config.json
LOCK = ".lock"
CONFIG_VERSION = 2
CHECKPOINT_VERSION = 2

# The comment at the end of a zip file, which torch's reader skips: a hash of all before it.
SEAL = b"sha256:"
SEAL_BYTES = 2 + len(SEAL) + 64  # with the length of the comment


def read_config(folder: Path, command: str, name: str) -> dict[str, Any]:
    """Return the settings of the run of `command` in `folder`; `name` is for messages."""
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(
            f"{folder} holds no run to resume: it has no {CONFIG}; start one without --resume"
        )
    try:
        content = read_json(path)
        check(content, {"command": str, "version": int, "settings": dict})
    except ValueError as error:
        raise ValueError(f"{path} is not the configuration of a {name}: {error}") from None
    made_by, version, settings = content["command"], content["version"], content["settings"]
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


def read_schedule(folder: Path) -> PolicySchedule:
    """Return the schedule that the training in `folder` began with."""
    path = folder / POLICY
    if not path.is_file():
        raise ValueError(f"{path} is missing: the training cannot go on without its policy")
    return PolicySchedule.load(path)


def sealed(state: dict[str, Any]) -> bytes:
    """Return `state` as a file of torch that carries its own hash.

    torch reads a zip file without checking it: a flipped bit would change a weight.
    """
    buffer = io.BytesIO()
    torch.save({"version": CHECKPOINT_VERSION, **state}, buffer)
    content = buffer.getvalue()[:-2]  # without the length of its empty comment
    comment = SEAL + hashlib.sha256(content).hexdigest().encode()
    return content + len(comment).to_bytes(2, "little") + comment


def unsealed(content: bytes, path: Path) -> dict[str, Any]:
    """Return what `sealed` was given, or raise a ValueError that names `path`."""
    body, comment = content[:-SEAL_BYTES], content[2 - SEAL_BYTES :]
    if not comment.startswith(SEAL):
        raise ValueError(
            f"{path} is not a checkpoint of this program: it has no checksum (0.2.0 wrote none)"
        )
    if comment != SEAL + hashlib.sha256(body).hexdigest().encode():
        raise ValueError(f"{path} is damaged: its content does not match its checksum")
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        version = state["version"]
    # torch.load raises whatever a forged file leads it to
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} is not a checkpoint of this program: {reason}") from None
    if version != CHECKPOINT_VERSION:
        raise ValueError(
            f"{path} is of version {version!r}; this program reads {CHECKPOINT_VERSION}"
        )
    return state


class RunFolder:
    """A run's folder, held by this process alone, or by rank 0 for all.

    config.json, which makes a folder a run, is written last. Other ranks have the folder with
    writes=False: their writes are no-ops.
    """

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self._metrics: IO[bytes] | None = None
        self._lines = 0
        self._curves: Curves | None = None
        self._lock: IO[bytes] | None = None
        self._made: list[Path] = []  # by `create`, in this order
        if not writes:
            self.require_visible()
            return
        self._lock = _locked(path)
        for file in path.iterdir():
            if is_temporary(file):
                file.unlink()

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

        `files` and config.json are in it. If anything goes wrong, what was created is removed.
        """
        config = {
            "version": CONFIG_VERSION,
            "command": command,
            "task": task,
            "settings": settings,
            "versions": versions(),
        }
        text = json.dumps(config, indent=2, ensure_ascii=False)
        path, is_new = _new_folder(path, data)
        folder = None
        try:
            folder = cls(path)
            folder._made += [path] if is_new else []
            folder._begin({**files, CONFIG: f"{text}\n".encode()})
            return folder
        except BaseException:
            if folder is not None:
                folder.discard()
            elif is_new:
                with contextlib.suppress(OSError):
                    path.rmdir()  # not if another process has it: it is not empty then
            raise

    def _begin(self, files: Files) -> None:
        """Write the first files, config.json last."""
        if (self.path / CONFIG).exists():  # another process was faster
            check_free(self.path)
        for name in FIRST_FILES:  # of a start that was killed
            (self.path / name).unlink(missing_ok=True)
        for name, content in files.items():
            self._made.append(self.path / name)
            write_atomically(self.path / name, content)

    def discard(self) -> None:
        """Remove what `create` made, and nothing else; close the folder."""
        with contextlib.suppress(OSError):  # the error that led here says more
            for path in reversed(self._made):
                if path == self.path:
                    self.close()
                    path.rmdir()
                else:
                    path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Release the lock; the system does that even if the process is killed."""
        if self._metrics is not None:
            with contextlib.suppress(OSError):  # every line was flushed when it was written
                self._metrics.close()
        if self._lock is not None and not self._lock.closed:
            if _is_at(self._lock, self.path / LOCK):
                with contextlib.suppress(OSError):
                    (self.path / LOCK).unlink()
            self._lock.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._curves is not None:
            self._curves.close()
        self.close()

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
        write_atomically(self.path / CHECKPOINT, sealed(state))

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Return the last checkpoint; None if the run was stopped before the first."""
        path = self.path / CHECKPOINT
        if not path.exists():
            return None
        return unsealed(path.read_bytes(), path)


def _locked(path: Path) -> IO[bytes]:
    """Lock a folder for this process, or raise a ValueError."""
    while True:
        lock = open(path / LOCK, "ab")  # to write: NFS grants no exclusive lock to readers
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(lock, path / LOCK):
                return lock
        except BlockingIOError:
            lock.close()
            raise ValueError(f"another process is working on {path}") from None
        except BaseException:
            lock.close()
            raise
        lock.close()  # its last owner has removed it since: take a new one


class NoFolder(RunFolder):
    """Keeps nothing: for a run from Python that names no folder."""

    def __init__(self) -> None:
        super().__init__(Path("memory only"), writes=False)

    def require_visible(self) -> None:
        return

    def load_checkpoint(self) -> None:
        return None


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Return whether `path` is still the open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _new_folder(path: Path | None, data: str) -> tuple[Path, bool]:
    """Return the folder of a new run, and whether this process has created it."""
    if path is not None:
        check_free(path)
        try:
            path.mkdir(parents=True)
            return path, True
        except FileExistsError:
            return path, False
    number = 1
    while True:
        free = Path("runs") / f"{data}-{number}"
        try:
            free.mkdir(parents=True)
            return free, True
        except FileExistsError:
            number += 1


def check_free(path: Path) -> None:
    """Raise a ValueError if a new run must not be written to `path`."""
    if (path / CONFIG).exists():
        raise ValueError(
            f"{path} already holds a run: add --resume to go on with it, or name another --out"
        )
    if not path.exists():
        return
    if not path.is_dir() or not all(_is_left_over(file) for file in path.iterdir()):
        raise ValueError(f"{path} exists and is not an empty folder: name another --out")


def _is_left_over(file: Path) -> bool:
    """Return whether a file of a folder without config.json is of a start that was killed."""
    if file.name == LOCK or is_temporary(file):
        return True
    return file.name in FIRST_FILES and (file.parent / LOCK).exists()
