"""Timing several ways to do one thing so that their ratios can be trusted.

Machines are shared and noisy: the ways take turns within every round, and what is reported is the
ratio of their medians, with the spread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

ROUND_SECONDS = 0.004  # one way's share of a round; long against the clock, short against the noise


@dataclass(frozen=True)
class Timing:
    """Seconds a call."""

    median: float
    low: float  # the quartiles
    high: float

    @classmethod
    def of(cls, seconds: list[float]) -> Timing:
        low, median, high = statistics.quantiles(seconds, n=4)
        return cls(median, low, high)


def take_turns(
    ways: dict[str, Callable[[], object]], rounds: int = 15, round_seconds: float = ROUND_SECONDS
) -> dict[str, Timing]:
    """Time every way, interleaved round by round."""
    calls = {}
    for name, way in ways.items():
        way()  # warm caches, compile, allocate
        start = time.perf_counter()
        way()
        calls[name] = max(1, round(round_seconds / (time.perf_counter() - start)))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                way()
            seconds[name].append((time.perf_counter() - start) / calls[name])
    return {name: Timing.of(times) for name, times in seconds.items()}


def harmonic_mean(values: list[float]) -> float:
    return statistics.harmonic_mean(values)
