"""Disks and data that fail under a run: one sentence, and the run goes on to the same bytes."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from commands import Command
from PIL import Image
from torture.faults import FLAGS, Faults

NOBODY = 65534


class NotAllowed(Exception):
    """This machine does not let us attack it like that."""


def mount(*arguments: object) -> None:
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise NotAllowed(done.stderr.strip() or "mount failed")


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Callable[[str], None]]:
    """Mount a tmpfs of so many bytes; yields a function that changes its options."""
    path.mkdir()
    try:
        mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", path)
    except FileNotFoundError as error:
        raise NotAllowed(str(error)) from None
    try:
        yield lambda options: mount("-o", f"remount,{options}", path)
    finally:
        subprocess.run(["umount", str(path)], check=True)
        path.rmdir()


def limit_files(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def no_hidden_files(out: Path) -> None:
    assert not out.exists() or not [file for file in out.iterdir() if file.name[0] == "."]


class Disks(Faults):
    """Attacks on the run folder."""

    def limited_files(self, generator: random.Random, runs: int) -> Counter[str]:
        """RLIMIT_FSIZE: a write fails in the middle."""
        counts: Counter[str] = Counter()
        largest = max(file.stat().st_size for file in (self.folder / "whole").iterdir())
        for number in range(runs):
            out, limit = self.folder / f"limited-{number}", generator.randrange(largest)
            child = self.start(out, *self.flags, first=lambda limit=limit: limit_files(limit))
            child.wait().require_sentence("too large")
            no_hidden_files(out)
            counts["count"] += 1
            counts["left nothing"] += not out.exists()
            self.require_the_same(out)
        return counts

    def full_disk(self, generator: random.Random, runs: int) -> Counter[str]:
        """A small tmpfs; in half of the runs --out is the mount point itself."""
        counts: Counter[str] = Counter()
        for number in range(runs):
            disk, size = self.folder / f"disk-{number}", generator.randrange(16 << 10, 900 << 10)
            with small_disk(disk, size) as remount:
                out = disk / "run" if number % 2 else disk
                end = self.start(out, *self.flags).wait().require(0, 2)
                if end.code:
                    end.require_sentence("disk is full")
                    no_hidden_files(out)
                    counts["count"] += 1
                    counts["left nothing"] += not out.exists() or not list(out.iterdir())
                remount("size=16m")
                inside = out if out != disk else disk / "."
                self.require_finished(inside)
        return counts

    def require_finished(self, out: Path) -> None:
        """As `require_the_same`, for a folder that cannot be removed."""
        self.start(out, *self.go_on(out)).wait().require(0)
        assert self.command.results(out) == self.expected, f"{out} differs"
        assert {path.name for path in out.iterdir()} == self.command.files, list(out.iterdir())

    def read_only(self, generator: random.Random, runs: int) -> Counter[str]:
        """A read-only file system at --resume, and rights that are lost in mid-run."""
        counts: Counter[str] = Counter()
        for number in range(runs):
            disk = self.folder / f"read-only-{number}"
            with small_disk(disk, 16 << 20) as remount:
                out = disk / "run"
                if number % 2:
                    self.interrupted(out)
                    remount("ro")
                    self.start(out, "--resume").wait().require_sentence("Read-only")
                    self.start(disk / "new", *self.flags).wait().require_sentence("Read-only")
                    remount("rw")
                    counts["count"] += 2
                else:
                    os.chown(disk, NOBODY, NOBODY)
                    first = lambda: os.seteuid(NOBODY)  # noqa: E731
                    child = self.start(out, *self.flags, first=first)
                    if not self._once_begun(child, out, generator):
                        continue
                    out.chmod(0o500)
                    end = child.wait().require(0, 2)
                    out.chmod(0o700)
                    if end.code:
                        end.require_sentence("Permission denied")
                        counts["count"] += 1
                self.require_finished(out)
        return counts

    def _once_begun(self, child, out: Path, generator: random.Random) -> bool:
        """Wait for the run to exist, and some time more; return whether it still runs."""
        while not (out / "checkpoint.pt").exists():
            if not child.runs(0.005):
                break
        return child.runs(generator.uniform(0, self.seconds / 3))

    def deleted(self, generator: random.Random, runs: int) -> Counter[str]:
        """The folder is deleted in mid-run."""
        counts: Counter[str] = Counter()
        for number in range(runs):
            out = self.folder / f"deleted-{number}"
            child = self.start(out, *self.flags)
            self._once_begun(child, out, generator)
            while out.exists():
                shutil.rmtree(out, ignore_errors=True)
            end = child.wait().require(0, 2)
            counts["count"] += end.code == 2
            if end.code:
                end.require_sentence("No such file")
                assert not out.exists()
            shutil.rmtree(out, ignore_errors=True)  # written by a run that had just ended
            self.require_the_same(out)
        return counts


class Data(Faults):
    """Attacks on the images of a run."""

    def __init__(self, command: Command, folder: Path) -> None:
        self.root = folder / "images"
        self._flags = (*command.folder, *FLAGS, "--root", self.root)
        super().__init__(command, folder)

    def _prepare(self) -> None:
        self.command.write_images(self.root)
        self.flags = self._flags
        super()._prepare()

    def changed(self, generator: random.Random, runs: int) -> Counter[str]:
        """A file is deleted, truncated or replaced in mid-run, and put back before --resume."""
        counts: Counter[str] = Counter()
        files = sorted(self.root.rglob("*.png"))
        ways = {"deleted": Path.unlink, "truncated": truncate, "replaced": replace}
        for number in range(runs):
            out = self.folder / f"data-{number}"
            way = list(ways)[number % len(ways)]
            child = self.start(out, *self.flags)
            while not (out / "checkpoint.pt").exists() and child.runs(0.005):
                pass
            time.sleep(generator.uniform(0, self.seconds / 10))
            chosen = generator.sample(files, len(files) // 2)
            before = {file: file.read_bytes() for file in chosen}
            for file in chosen:
                ways[way](file)
            end = child.wait().require(0, 2)
            for file, content in before.items():
                file.write_bytes(content)
            counts["count"] += 1
            if end.code:
                counts[f"{way}: noticed"] += 1
                end.require_sentence(*map(str, chosen), "other images")
                self.require_the_same(out)
            else:
                same = self.command.results(out) == self.expected
                assert same or "images were changed" in end.text, end
                counts[f"{way}: not read again" if same else f"{way}: a warning"] += 1
                shutil.rmtree(out)
        return counts


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def replace(file: Path) -> None:
    Image.new("RGB", (31, 17), (200, 100, 50)).save(file)
