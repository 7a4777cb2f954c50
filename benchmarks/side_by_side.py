"""Timing several implementations of the same thing, interleaved.

Machines are shared and noisy: the implementations alternate in every round, and the result is the
ratio of their medians, with the spread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

ROUND_SECONDS = 0.004  # one way's share of a round; long against the clock, short against the noise


@dataclass(frozen=True)
class Timing:
    """Seconds per call."""

    median: float
    low: float  # the quartiles
    high: float

    @classmethod
    def of(cls, seconds: list[float]) -> Timing:
        low, median, high = statistics.quantiles(seconds, n=4)
        return cls(median, low, high)


def wall_seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def gpu_seconds(work: Callable[[], object]) -> float:
    """Measure with the GPU's clock until the work on all of its streams is done."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    work()
    torch.cuda.synchronize()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


CLOCKS = {"cpu": wall_seconds, "cuda": gpu_seconds}
clock = wall_seconds  # set to another of CLOCKS by --device


def take_turns(
    ways: dict[str, Callable[[], object]], rounds: int = 15, round_seconds: float = ROUND_SECONDS
) -> dict[str, Timing]:
    """Time every implementation, interleaved round by round."""
    calls = {}
    for name, way in ways.items():
        way()  # warm caches, compile, allocate
        calls[name] = max(1, round(round_seconds / clock(way)))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            many = partial(repeat, way, calls[name])
            seconds[name].append(clock(many) / calls[name])
    return {name: Timing.of(times) for name, times in seconds.items()}


def repeat(way: Callable[[], object], times: int) -> None:
    for _ in range(times):
        way()


def harmonic_mean(values: list[float]) -> float:
    return statistics.harmonic_mean(values)
