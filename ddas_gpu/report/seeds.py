"""Runs that differ only in their seed, and what can be told from so few of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Generic, TypeVar

from ddas_gpu.report.reading import RecordedRun

AnyRun = TypeVar("AnyRun", bound=RecordedRun)

CONFIDENCE = 0.95
MOST_SEEDS = 100  # that one would train
# Settings that do not make a run another one: where it is, and how it was carried out.
FREE = (
    "checkpoint_seconds",
    "checkpoint_epochs",
    "out",
    "resume",
    "seed",
    "tensorboard",
    "threads",
    "timeout",
    "workers",
)


@dataclass(frozen=True)
class Group(Generic[AnyRun]):
    """The runs of one setting, by seed."""

    name: str
    runs: dict[int, AnyRun]

    @property
    def first(self) -> AnyRun:
        return next(iter(self.runs.values()))


def grouped(runs: Sequence[AnyRun], names: Sequence[str]) -> list[Group[AnyRun]]:
    """Put the runs that differ only in their seed together, in the order given.

    names: of the runs. A group of several is named by its folder, else by its policy, else by its
    first run.
    """
    found: dict[str, dict[int, int]] = {}  # {settings: {seed: index of the run}}
    for index, run in enumerate(runs):
        seed = run.settings.get("seed", index)
        same = found.setdefault(_key(run), {})
        # A run without a seed, or with one that is there, stands for itself.
        same[seed if isinstance(seed, int) and seed not in same else -1 - index] = index
    members = [list(seeds.values()) for seeds in found.values()]
    group_names = _group_names(runs, names, members)
    return [
        Group(name, {seed: runs[index] for seed, index in seeds.items()})
        for name, seeds in zip(group_names, found.values(), strict=True)
    ]


def _key(run: RecordedRun) -> str:
    kept = {name: value for name, value in run.settings.items() if name not in FREE}
    return json.dumps(kept, sort_keys=True, default=str)


def _group_names(
    runs: Sequence[RecordedRun], names: Sequence[str], members: list[list[int]]
) -> list[str]:
    if all(len(group) == 1 for group in members):
        return [names[group[0]] for group in members]
    folders = [{runs[i].folder.resolve().parent for i in group} for group in members]
    places = [next(iter(found)).name if len(found) == 1 else "" for found in folders]
    policies = [str(runs[group[0]].settings.get("policy", "")) for group in members]
    for choice in (places, policies):
        if all(choice) and len(set(choice)) == len(choice):
            return choice
    return [
        names[first] if not more else f"{names[first]} and {len(more)} more"
        for first, *more in members
    ]


@dataclass(frozen=True)
class Spread:
    """A mean over seeds."""

    mean: float
    error: float  # the standard error of the mean; NaN for one seed
    half: float  # half of the 95 % interval; NaN for one seed
    seeds: int

    @property
    def told(self) -> bool:
        """Whether the interval excludes 0. Seeds without any spread tell nothing, either."""
        return self.half > 0 and abs(self.mean) > self.half

    @property
    def seeds_needed(self) -> int | None:
        """About how many seeds would tell this mean from 0, with this spread; None if too many."""
        deviation = self.error * math.sqrt(self.seeds)
        enough = (
            seeds
            for seeds in range(2, MOST_SEEDS + 1)
            if t_quantile((1 + CONFIDENCE) / 2, seeds - 1) * deviation < abs(self.mean) * seeds**0.5
        )
        return next(enough, None)

    def to_json(self) -> dict[str, Any]:
        interval = [self.mean - self.half, self.mean + self.half] if self.seeds > 1 else None
        return {
            "mean": self.mean,
            "standard_error": self.error if self.seeds > 1 else None,
            "interval": interval,
            "seeds": self.seeds,
        }


def spread_of(values: Sequence[float], comparisons: int = 1) -> Spread:
    """Return mean, standard error and t interval of numbers that differ by their seed.

    comparisons: with several intervals at once, all hold together with 95 % (Bonferroni).
    """
    if len(values) < 2:
        return Spread(fmean(values), math.nan, math.nan, len(values))
    error = stdev(values) / math.sqrt(len(values))
    quantile = t_quantile(1 - (1 - CONFIDENCE) / 2 / comparisons, len(values) - 1)
    return Spread(fmean(values), error, quantile * error, len(values))


def paired(
    ours: Mapping[int, float], theirs: Mapping[int, float], comparisons: int = 1
) -> Spread | None:
    """Return the spread of ours − theirs over the seeds that both have; None if there is none."""
    common = [seed for seed in ours if seed in theirs and seed >= 0]
    differences = [ours[seed] - theirs[seed] for seed in common]
    return spread_of(differences, comparisons) if differences else None


def told_apart(spreads: Mapping[str, Spread]) -> list[str]:
    """Return the names whose mean is told apart from 0, at most 5 % of them by chance.

    Benjamini and Hochberg's procedure on the p-values of Student's t.
    """

    def p_value(spread: Spread) -> float:
        if not spread.error > 0:
            return 1.0
        return 2 * (1 - t_probability(abs(spread.mean) / spread.error, spread.seeds - 1))

    values = {name: p_value(spread) for name, spread in spreads.items()}
    ordered = sorted(values, key=values.__getitem__)
    level = (1 - CONFIDENCE) / max(1, len(ordered))
    below = [n for n, name in enumerate(ordered, 1) if values[name] <= level * n]
    return ordered[: max(below, default=0)]


def t_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t for a probability above 1/2, by bisection.

    >>> round(t_quantile(0.975, 2), 3), round(t_quantile(0.975, 9), 3)
    (4.303, 2.262)
    """
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if t_probability(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return high


def t_probability(t: float, freedom: int) -> float:
    """Return P(T ≤ t), t ≥ 0, of Student's t with whole degrees of freedom.

    The finite sums of Abramowitz & Stegun, 26.7.3 and 26.7.4.
    """
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2 == 1
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(3 if odd else 2, freedom + 1, 2):
        total += term
        term *= cosine**2 * (k - 1) / k
    between = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return 0.5 + between / 2
