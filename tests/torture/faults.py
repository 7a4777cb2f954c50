"""Kills, full disks and rivals: every run must end with the bytes of an undisturbed one."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands import Command
from torture.children import Child, End

SIGNALS = (*4 * (signal.SIGKILL,), signal.SIGTERM, signal.SIGINT)
LONGER = ("--epochs", "6", "--checkpoint-seconds", "0.02")


@dataclass
class Faults:
    """Runs of one command, disturbed, against one that was not."""

    command: Command
    folder: Path  # for all runs
    generator: random.Random

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.flags = (*self.command.tiny, *LONGER)
        start = time.monotonic()
        end = self.start(self.folder / "whole", *self.flags).wait()
        self.seconds = time.monotonic() - start
        assert end.code == 0, end.text
        self.expected = self.results(self.folder / "whole")

    def start(self, out: Path, *flags: object, largest_file: int | None = None) -> Child:
        def work() -> int:
            return self.command(*flags, "--out", out)

        return Child(work, self.folder / f"{out.name}.log", largest_file)

    def results(self, out: Path) -> dict[str, Any]:
        return self.command.results(out)

    def go_on(self, out: Path) -> tuple[object, ...]:
        """Return the flags that continue a run, or start it if it was killed too early."""
        return ("--resume",) if (out / "config.json").exists() else self.flags

    def require_the_same(self, out: Path, end: End) -> None:
        assert end.code == 0, f"{out}: {end.text}"
        assert self.results(out) == self.expected, f"{out} differs"
        assert {path.name for path in out.iterdir()} == self.command.files, list(out.iterdir())

    def killed(self, kills: int) -> Counter[str]:
        """Kill runs at random moments, several times each; then let them end."""
        counts: Counter[str] = Counter()
        while counts["kills"] < kills:
            out = self.folder / f"killed-{counts['runs']}"
            counts["runs"] += 1
            for _ in range(self.generator.randint(1, 4)):
                child = self.start(out, *self.go_on(out))
                time.sleep(self.generator.uniform(0, self.seconds))
                number = self.generator.choice(SIGNALS)
                child.kill(number)
                end = child.wait()
                assert "Traceback" not in end.text, end.text
                assert end.code in (0, -number, 128 + number), (number, end)
                counts["kills"] += end.code != 0
                counts["before config.json"] += not (out / "config.json").exists()
            self.require_the_same(out, self.start(out, *self.go_on(out)).wait())
        return counts

    def out_of_space(self, runs: int) -> Counter[str]:
        """Limit the size of files at random: a write fails in the middle, with a sentence."""
        counts: Counter[str] = Counter()
        largest = max(file.stat().st_size for file in (self.folder / "whole").iterdir())
        for number in range(runs):
            out = self.folder / f"full-{number}"
            limit = self.generator.randrange(largest)
            end = self.start(out, *self.flags, largest_file=limit).wait()
            assert end.code == 2 and "Traceback" not in end.text, end
            assert "too large" in end.text or "full" in end.text, end.text
            assert not out.exists() or not [f for f in out.iterdir() if f.name[0] == "."]
            counts["runs"] += 1
            counts["without a folder"] += not out.exists()
            self.require_the_same(out, self.start(out, *self.go_on(out)).wait())
        return counts

    def rivals(self, rounds: int, processes: int = 4) -> Counter[str]:
        """Start several processes on one folder at once: one runs, the others refuse."""
        counts: Counter[str] = Counter()
        for number in range(rounds):
            out = self.folder / f"rivals-{number}"
            children = [
                Child(self._rival(out), self.folder / f"rival-{number}-{i}.log")
                for i in range(processes)
            ]
            ends = [child.wait() for child in children]
            assert sorted(end.code for end in ends) == [0] + [2] * (processes - 1), ends
            assert all(end.in_order for end in ends), ends
            self.require_the_same(out, ends[[end.code for end in ends].index(0)])
            counts["rounds"] += 1
            counts["refused"] += processes - 1
        return counts

    def _rival(self, out: Path) -> Callable[[], int]:
        return lambda: self.command(*self.flags, "--out", out)
