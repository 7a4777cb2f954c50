"""Means, standard errors and paired differences of recorded accuracies."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from .protocol import COMPARED, COMPARED_SEEDS, DATA, LEVELS

Line = dict[str, Any]
Scores = dict[str, dict[int, float]]  # {peer: {seed: test accuracy in %}}

PEERS = {
    "none": "none",
    "standard": "standard transform",
    "uniform": "uniform, p_tp 0.35",
    "uniform-searched": "uniform, searched p_tp",
    "randaugment": "RandAugment",
    "trivialaugment": "TrivialAugment, RA ranges",
    "trivialaugment-wide": "TrivialAugment, wide",
    "released": "released CIFAR-10 policy",
}
SEARCHED = "searched"
KEPT = "kept"  # of the searched policy and those that need no search, by validation
BEFORE = "before"  # searched with the settings of 0.2.0


def read_lines(results: Path) -> list[Line]:
    """Return what was recorded, in `results` and in files like results-earlier.jsonl beside it."""
    files = sorted(results.parent.glob(f"{results.stem}*.jsonl"))
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    return [json.loads(line) for line in lines if line]


def key_of(line: Line) -> tuple[str, str, str, str, int]:
    """Return what a run is known by."""
    return (line["kind"], line["data"], line["domain"], line["name"], line["seed"])


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its standard error."""

    mean: float
    error: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.error:.1f}"

    @property
    def signed(self) -> str:
        return f"{self.mean:+.1f} ± {self.error:.1f}"


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean and its standard error, which one value does not have."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Estimate(mean(values), error, len(values))


def scores_in(lines: Sequence[Line], data: str, domain: str) -> Scores:
    """Return the test accuracies of a domain, with RandAugment at the level of its validation."""
    found: Scores = defaultdict(dict)
    validated: Scores = defaultdict(dict)
    for line in lines:
        if (line["kind"], line["data"], line["domain"]) == ("training", data, domain):
            found[line["name"]][line["seed"]] = line["accuracy"]
            validated[line["name"]][line["seed"]] = line["validation"]
    names = [f"randaugment-{level}" for level in LEVELS]
    if all(name in found for name in names):
        for seed in set.intersection(*(set(found[name]) for name in names)):
            chosen = max(names, key=lambda name: validated[name][seed])  # the lowest of equals
            found["randaugment"][seed] = found[chosen][seed]
    return dict(found)


def compared_name(policy: str, number: int) -> str:
    """Return what a training of the comparison is recorded as."""
    return f"compared-{policy}-{number}"


def with_kept(lines: Sequence[Line]) -> list[Line]:
    """Return the lines with those of the kept policies: of each comparison the best on average.

    Its accuracy is that of the policy's own training, with the seed of the tables.
    """
    trained = {key_of(line): line for line in lines if line["kind"] == "training"}
    found = list(lines)
    for kind, data, domain, name, seed in list(trained):
        if name != SEARCHED:
            continue
        policies = (DATA[data].unaugmented, *COMPARED, SEARCHED)
        validated: dict[str, float] = {}
        for policy in policies:
            names = [compared_name(policy, n) for n in range(len(COMPARED_SEEDS))]
            runs = [trained.get((kind, data, domain, other, seed)) for other in names]
            if all(run is not None for run in runs):
                validated[policy] = mean(run["validation"] for run in runs if run is not None)
        if len(validated) < len(policies):
            continue
        best = max(validated, key=lambda policy: validated[policy])  # the first of equals
        chosen = trained[kind, data, domain, best, seed]
        found.append({**chosen, "name": KEPT, "policy": best})
    return found


def common(scores: Scores, names: Sequence[str]) -> Scores:
    """Return those of the names that were run, over the seeds that all of them have."""
    there = [name for name in names if name in scores]
    seeds = set.intersection(*(set(scores[name]) for name in there)) if there else set()
    return {name: {seed: scores[name][seed] for seed in sorted(seeds)} for name in there}


def paired(first: dict[int, float], second: dict[int, float]) -> Estimate:
    """Return the mean difference, seed by seed."""
    return estimate([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])


@dataclass(frozen=True)
class Standing:
    """Where the searched policy stands among its peers in one domain."""

    data: str
    domain: str
    scores: Scores
    best_peer: str
    difference: Estimate  # searched minus the best peer, paired
    from_uniform: Estimate  # searched minus uniform at p_tp 0.35, paired

    @property
    def first(self) -> bool:
        return self.difference.mean > 0

    @property
    def clearly_first(self) -> bool:
        return self.difference.mean > self.difference.error

    @property
    def behind(self) -> bool:
        return self.difference.mean < -self.difference.error

    @property
    def worse_than_uniform(self) -> bool:
        return self.from_uniform.mean < -self.from_uniform.error

    def __str__(self) -> str:
        if self.clearly_first:
            return "first"
        if self.first:
            return "first, within one error"
        return "**behind**" if self.behind else "within one error"


def standing(
    lines: Sequence[Line],
    data: str,
    domain: str,
    searched: str = SEARCHED,
    seeds: Sequence[int] | None = None,
) -> Standing | None:
    """Return the standing in a domain; None where a peer or the search has fewer than two seeds.

    searched: the name of the runs whose standing it is. seeds: without this those of the tables.
    """
    wanted = DATA[data].table_seeds if seeds is None else seeds
    found = scores_in([line for line in lines if line["seed"] in wanted], data, domain)
    found = {name: found[name] for name in found if name != SEARCHED} | (
        {SEARCHED: found[searched]} if searched in found else {}
    )
    scores = common(found, [*PEERS, SEARCHED])
    if SEARCHED not in scores or "uniform" not in scores or len(scores[SEARCHED]) < 2:
        return None
    peers = [name for name in scores if name != SEARCHED]
    best = max(peers, key=lambda name: mean(scores[name].values()))
    return Standing(
        data,
        domain,
        scores,
        best,
        paired(scores[SEARCHED], scores[best]),
        paired(scores[SEARCHED], scores["uniform"]),
    )
