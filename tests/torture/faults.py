"""Kills, rivals and wrong checkpoints: every run must end with the bytes of an undisturbed one."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from commands import Command
from torture.children import Child, End

from ddas_gpu.runs.run_folder import sealed

# 12 steps in 3 epochs, and a checkpoint after each.
FLAGS = ("--epochs", "3", "--checkpoint-seconds", "0.0001")


class Faults:
    """Runs of one command, disturbed, against one that was not."""

    def __init__(self, command: Command, folder: Path) -> None:
        self.command, self.folder = command, folder
        self.flags: tuple[object, ...] = (*command.tiny, *FLAGS)
        folder.mkdir(parents=True)
        self._prepare()

    def _prepare(self) -> None:
        """Run undisturbed, and count the writes."""
        self._import_what_it_imports()
        writes = self.folder / "writes"

        def note(number: int, place: str, *_: object) -> None:
            writes.write_text(str(number + 1))

        start = time.monotonic()
        out = self.folder / "whole"
        self.start(out, *self.flags, first=lambda: at_writes(note)).wait().require(0)
        self.seconds = time.monotonic() - start
        self.writes = int(writes.read_text())
        self.expected = self.command.results(out)

    def _import_what_it_imports(self) -> None:
        """Import here what a run imports on its way, so that the next ones need not."""
        out, names = self.folder / "first", self.folder / "modules"

        def work() -> int:
            code = self.command(*self.flags, "--out", out)
            names.write_text("\n".join(sys.modules))
            return code

        Child(work, self.folder / "first.log").wait().require(0)
        for name in names.read_text().splitlines():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        shutil.rmtree(out)

    def start(self, out: Path, *flags: object, first: Callable[[], object] | None = None) -> Child:
        def work() -> int:
            return self.command(*flags, "--out", out)

        return Child(work, self.folder / f"{out.name}.log", first)

    def go_on(self, out: Path) -> tuple[object, ...]:
        """Return the flags that continue a run, or start it if it was stopped too early."""
        return ("--resume",) if (out / "config.json").exists() else self.flags

    def require_the_same(self, out: Path, end: End | None = None) -> None:
        """Let a run end, if it has not; it must have the bytes of the undisturbed one."""
        if end is None:
            fresh, begin = not (out / "config.json").exists(), time.monotonic()
            end = self.start(out, *self.go_on(out)).wait()
            if fresh:
                self.seconds = time.monotonic() - begin
        end.require(0)
        assert self.command.results(out) == self.expected, f"{out} differs"
        assert {path.name for path in out.iterdir()} == self.command.files, list(out.iterdir())
        shutil.rmtree(out)

    def interrupted(self, out: Path) -> None:
        """Make a run that was stopped after its sixth step, by a copy."""
        half = self.folder / "half"
        if not half.exists():

            def stop() -> None:
                real = self.command.job.step

                def step(job):
                    if job.steps == 5:
                        os.kill(os.getpid(), signal.SIGTERM)
                    return real(job)

                self.command.job.step = step

            self.start(half, *self.flags, first=stop).wait().require(128 + signal.SIGTERM)
        shutil.copytree(half, out)

    def let_run(self, child: Child, fresh: bool, generator: random.Random) -> None:
        """Wait for a random part of a run's time; learn from a whole run that ends before.

        Other work on the machine makes runs slower and faster.
        """
        begin = time.monotonic()
        if not child.runs(generator.uniform(0, self.seconds)) and fresh:
            self.seconds = time.monotonic() - begin

    # --- attacks: each returns what it has counted ------------------------------------------------

    def killed(self, generator: random.Random, kills: int) -> Counter[str]:
        """kill -9, several times per run: at random moments, and inside writes."""
        counts: Counter[str] = Counter()
        while counts["count"] < kills:
            out = self.folder / f"killed-{counts['runs']}"
            counts["runs"] += 1
            for _ in range(min(generator.randint(1, 4), kills - counts["count"])):
                if generator.random() < 0.5:
                    number = generator.choice((generator.randrange(self.writes), self.writes - 1))
                    place = generator.choice(PLACES)
                    child = self.start(out, *self.go_on(out), first=dying_at(number, place))
                    end, where = child.wait(), "in a write"
                else:
                    fresh = not (out / "config.json").exists()
                    child = self.start(out, *self.go_on(out))
                    self.let_run(child, fresh, generator)
                    child.kill()
                    end, where = child.wait(), "at a moment"
                if end.require(0, -signal.SIGKILL).code == 0:
                    break
                counts["count"] += 1
                counts[where] += 1
                counts["in the report"] += self._lacks_only_the_report(out)
                counts["before the run existed"] += not (out / "config.json").exists()
            self.require_the_same(out)
        return counts

    def _lacks_only_the_report(self, out: Path) -> bool:
        if not (out / "checkpoint.pt").exists() or (out / "report.html").exists():
            return False
        state = torch.load(out / "checkpoint.pt", weights_only=True)
        return state[self.command.noun]["steps"] == 12

    def stopped(self, generator: random.Random, stops: int) -> Counter[str]:
        """SIGTERM and SIGINT at random moments, half of them twice."""
        counts: Counter[str] = Counter()
        for number in range(stops):
            out = self.folder / f"stopped-{number}"
            child = self.start(out, *self.flags)
            self.let_run(child, True, generator)
            sent = generator.choice((signal.SIGTERM, signal.SIGINT))
            for _ in range(generator.randint(1, 2)):
                child.kill(sent)
                child.runs(generator.uniform(0, 0.02))
            end = child.wait().require(0, -sent, 128 + sent)
            counts["count"] += 1
            counts["with a run to resume"] += "--resume" in end.text
            self.require_the_same(out)
        return counts

    def rivals(self, generator: random.Random, rounds: int) -> Counter[str]:
        """Start four processes on one folder at once: one runs, the others refuse."""
        counts: Counter[str] = Counter()
        for number in range(rounds):
            out = self.folder / f"rivals-{number}"
            children = [
                Child(
                    lambda out=out: self.command(*self.flags, "--out", out),
                    self.folder / f"rival-{number}-{i}.log",
                )
                for i in range(4)
            ]
            ends = [child.wait().require(0, 2) for child in children]
            assert sorted(end.code for end in ends) == [0, 2, 2, 2], ends
            self.require_the_same(out, next(end for end in ends if end.code == 0))
            counts["count"] += 1
        return counts

    def checkpoints(self, generator: random.Random, runs: int) -> Counter[str]:
        """Truncated, damaged and foreign checkpoints: refused, and nothing else is touched."""
        counts: Counter[str] = Counter()
        for number in range(runs):
            out = self.folder / f"checkpoint-{number}"
            self.interrupted(out)
            path = out / "checkpoint.pt"
            good = path.read_bytes()
            kinds = {
                "truncated": lambda good=good: good[: generator.randrange(len(good))],
                "of torch": lambda: sealed({"data": [1, 2], "model": {"w": torch.zeros(3)}}),
                "of other weights": lambda path=path: other_weights(path),
                "of another file": lambda out=out: (out / "samples.npz").read_bytes(),
            }
            kind = list(kinds)[number % len(kinds)]
            path.write_bytes(kinds[kind]())
            before = {file.name: file.read_bytes() for file in out.iterdir()}
            self.start(out, "--resume").wait().require_sentence("checkpoint")
            assert {file.name: file.read_bytes() for file in out.iterdir()} == before
            path.write_bytes(good)
            counts["count"] += 1
            counts[kind] += 1
            self.require_the_same(out)
        return counts


def other_weights(path: Path) -> bytes:
    """Return a checkpoint whose tensors all have another shape."""
    state = torch.load(path, weights_only=True)
    del state["version"]

    def change(leaf: object) -> object:
        return torch.zeros(2, 3, 5) if torch.is_tensor(leaf) else leaf

    return sealed(torch.utils._pytree.tree_map(change, state))


# --- inside writes ------------------------------------------------------------------------------

PLACES = ("halfway", "written", "flushed", "renamed")


def at_writes(call: Callable[..., None]) -> None:
    """Call `call(number of the write, place, descriptor)` within every write of this process."""
    fsync, replace, number = os.fsync, os.replace, 0

    def counted_fsync(descriptor):
        nonlocal number
        call(number, "halfway", descriptor)
        call(number, "written")
        fsync(descriptor)
        call(number, "flushed")
        number += 1

    def counted_replace(old, new):
        replace(old, new)
        call(number - 1, "renamed")

    os.fsync, os.replace = counted_fsync, counted_replace


def dying_at(number: int, place: str) -> Callable[[], None]:
    """Return what makes this process kill itself inside a write."""

    def die(write: int, now: str, descriptor: int | None = None) -> None:
        if (write, now) == (number, place):
            # metrics.jsonl is only appended to: what is in it has been there before
            if descriptor and os.readlink(f"/proc/self/fd/{descriptor}").endswith(".part"):
                os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    return lambda: at_writes(die)
