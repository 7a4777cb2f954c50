"""Long runs: memory, open files and threads must stay flat."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from search_commands import search
from torture.children import Child

STEPS = 250  # per epoch, on a network of a few weights
SEARCH = (
    *(
        "--train-images",
        str(4 * STEPS),
        "--val-images",
        "40",
        "--batch-size",
        "4",
        "--threads",
        "1",
    ),
    *("--val-batch-size", "4", "--policies", "2", "--model", "torture.load:tiny_network"),
    *("--warmup-epochs", "0"),
)
SAMPLES = 200


def tiny_network(classes: int):
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, classes),
    )  # fmt: skip


@dataclass(frozen=True)
class Slopes:
    """How much is taken per 1,000 rounds, after the first tenth of them."""

    rounds: int
    first: tuple[int, int, int]  # KiB, open files, threads
    last: tuple[int, int, int]
    kib: float
    files: float
    threads: float

    @classmethod
    def of(cls, taken: list[tuple[int, int, int, int]]) -> Slopes:
        rows = np.array(taken)
        rows = rows[rows[:, 0] >= rows[-1, 0] / 10]
        slopes = [1000 * np.polyfit(rows[:, 0], column, 1)[0] for column in rows[:, 1:].T]
        first, last = (tuple(map(int, row[1:])) for row in rows[[0, -1]])
        return cls(int(rows[-1, 0]), first, last, *map(float, slopes))


def usage() -> tuple[int, int, int]:
    """Return the resident KiB, open files and threads of this process."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    files = len(os.listdir("/proc/self/fd"))
    return int(lines["VmRSS"].split()[0]), files, int(lines["Threads"])


def sampled(folder: Path, rounds: int, work: Callable[[Callable[[int], None]], int]) -> Slopes:
    """Run `work` in a child; it calls its argument after every round, with its number."""
    notes = folder / "usage.jsonl"
    every = max(1, rounds // SAMPLES)

    def note(done: int) -> None:
        if done % every == 0:
            with notes.open("a") as file:
                print(json.dumps((done, *usage())), file=file)

    notes.unlink(missing_ok=True)
    Child(lambda: work(note), folder / "load.log").wait(seconds=4 * 3600).require(0)
    return Slopes.of([json.loads(line) for line in notes.read_text().splitlines()])


def search_steps(folder: Path, steps: int) -> Slopes:
    """A search with the command, of at least so many steps."""

    def work(note: Callable[[int], None]) -> int:
        real = search.job.step

        def step(job):
            note(job.steps)
            return real(job)

        search.job.step = step
        epochs = -(-steps // STEPS)
        return search(*SEARCH, "--epochs", epochs, "--out", folder / "run")

    return sampled(folder, steps, work)


def policy_batches(folder: Path, batches: int) -> Slopes:
    """A DALI pipeline with the policy node."""

    def work(note: Callable[[int], None]) -> int:
        from ddas_gpu import PolicySchedule, SearchSpace, training_pipeline

        space = SearchSpace.preset("cifar")
        schedule = PolicySchedule(space, np.ones(1), np.full((1, len(space)), 1 / len(space)))
        images = np.random.default_rng(0).integers(0, 256, (64, 8, 8, 3), np.uint8)
        labels = np.arange(64) % 10
        pipeline = training_pipeline((images, labels), schedule, 4, 3, "cpu", num_threads=1)
        for done in range(batches + 1):
            pipeline.run()
            note(done)
        return 0

    return sampled(folder, batches, work)
