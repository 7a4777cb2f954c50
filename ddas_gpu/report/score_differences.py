"""Trainings of several policies and seeds: mean scores, paired differences, and what they tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ddas_gpu.report.numbers import count, in_words
from ddas_gpu.report.seeds import MOST_SEEDS, Group, Spread, paired, spread_of
from ddas_gpu.report.training_run import TrainingRun
from ddas_gpu.report.training_scores import ScoreWords

VERSION = 1  # of comparison.json
SEARCHED = "searched"
PREFERRED = ("uniform", "trivialaugment", "none")  # for the headline, the first there is
# Scores of runs that differ in one of these are not comparable.
SAME_TEST = ("data", "root", "test_root", "test_share")


@dataclass(frozen=True)
class Difference:
    """How a policy compares with another one."""

    ours: str
    theirs: str
    spread: Spread | None  # of ours − theirs; None if they have no seed in common
    words: ScoreWords

    @property
    def told(self) -> bool:
        return self.spread is not None and self.spread.told

    @property
    def sentence(self) -> str:
        """Return the result in words."""
        ours, theirs = in_a_sentence(self.ours), in_a_sentence(self.theirs)
        if self.spread is None:
            return f"{ours} and {theirs} have no seed in common and cannot be compared"
        if self.spread.seeds < 2:
            return f"{ours} cannot be told from {theirs} with one seed"
        by = self.words.difference(abs(self.spread.mean), self.spread.half)
        if self.told:
            side = "better" if self.spread.mean > 0 else "worse"
            return f"{ours} is {side} than {theirs} by {by}"
        return f"{ours} cannot be told from {theirs} with these {self.spread.seeds} seeds"

    @property
    def outlook(self) -> str | None:
        """Return how many seeds a difference of this size would take, where it cannot be told."""
        if self.told or self.spread is None or self.spread.seeds < 2 or not self.spread.error:
            return None
        by, needed = self.words.difference(abs(self.spread.mean), None), self.spread.seeds_needed
        return f"to tell {by} apart would take about {needed or f'more than {MOST_SEEDS}'} seeds"

    def to_json(self) -> dict[str, Any]:
        spread = None if self.spread is None else self.spread.to_json()
        found = {"ours": self.ours, "theirs": self.theirs, "difference": spread}
        return {**found, "told": self.told, "sentence": self.sentence}


def validation_means(groups: Sequence[Group[TrainingRun]]) -> dict[str, float]:
    """Return {setting: mean score on the validation images}; nothing unless all have some."""
    found = {group.name: [run.validation for run in group.runs.values()] for group in groups}
    if any(score is None for scores in found.values() for score in scores):
        return {}
    return {
        name: fmean(score for score in scores if score is not None)
        for name, scores in found.items()
    }


def in_a_sentence(name: str) -> str:
    """Return how a sentence calls a policy."""
    return {SEARCHED: "the searched policy", "none": "training without a policy"}.get(name, name)


class ScoreComparison:
    """The settings that are compared, each with its seeds.

    subject: the name of the policy in question; without one, that with the highest mean.
    """

    def __init__(self, groups: Sequence[Group[TrainingRun]], subject: str | None = None) -> None:
        self.groups, self.words = list(groups), groups[0].first.words
        self.scores = {
            group.name: {seed: run.score for seed, run in group.runs.items()} for group in groups
        }
        self.spreads = {
            name: spread_of(list(scores.values())) for name, scores in self.scores.items()
        }
        self.validated = validation_means(groups)
        self.is_chosen = subject is not None
        self.subject = subject or max(self.spreads, key=lambda name: self.spreads[name].mean)
        peers = [name for name in self.scores if name != self.subject]
        # A policy that was picked because it scored highest must stand against all at once.
        at_once = 1 if self.is_chosen else max(1, len(peers))
        self.differences = [
            Difference(
                self.subject,
                name,
                paired(self.scores[self.subject], self.scores[name], at_once),
                self.words,
            )
            for name in peers
        ]

    @property
    def kept(self) -> str | None:
        """The policy with the best mean on the validation images, the first of equals.

        None without such images: the test images choose nothing.
        """
        return max(self.validated, key=lambda name: self.validated[name], default=None)

    def keeps(self) -> str | None:
        """Return in words which policy is kept."""
        if self.kept is None:
            return None
        score = self.words.show(self.validated[self.kept])
        which = in_a_sentence(self.kept)
        return f"{capital(which)} is best on the validation images ({score}) and kept"

    @property
    def comparable(self) -> bool:
        tests = {
            tuple(str(group.first.settings.get(name)) for name in SAME_TEST)
            for group in self.groups
        }
        return len(tests) == 1

    @property
    def seeds(self) -> int:
        """The least number of seeds of a setting."""
        return min(len(group.runs) for group in self.groups)

    def headline(self) -> str:
        """Return the result in one sentence; no winner is named inside the noise."""
        if len(self.groups) == 1:
            (spread,) = self.spreads.values()
            return f"{self.words.name} {self.mean_of(self.subject)}, {count(spread.seeds, 'seed')}"
        if not self.comparable:
            return f"{count(len(self.groups), 'setting')} with different test images"
        if self.is_chosen:
            return capital(self._against_the_preferred().sentence)
        if self.seeds < 2:
            return "One seed each: no difference can be told from noise"
        alike = [d.theirs for d in self.differences if not d.told]
        if alike:
            return f"No winner: {in_words([self.subject, *alike])} cannot be told apart"
        nearest = min(self.differences, key=lambda d: d.spread.mean if d.spread else 0.0)
        return capital(nearest.sentence)

    def _against_the_preferred(self) -> Difference:
        def rank(difference: Difference) -> int:
            names = [*PREFERRED, difference.theirs]
            return names.index(difference.theirs)

        return min(self.differences, key=rank)

    def advice(self) -> str | None:
        """Return what to do where the policy in question does not beat what costs nothing."""
        if not self.is_chosen or self.seeds < 2 or not self.comparable:
            return None
        told = {d.theirs: d.spread.mean for d in self.differences if d.spread and d.spread.told}
        ahead = min(told, key=lambda name: told[name], default="")
        if ahead and told[ahead] < 0:
            policy = next(g for g in self.groups if g.name == ahead).first.settings.get("policy")
            return f"Here --policy {policy} is better."
        if "uniform" not in self.scores or "uniform" in told:
            return None
        if "trivialaugment" in told:  # and behind
            return "No policy is told apart from uniform here: --policy uniform needs no search."
        return (
            "No policy is told apart from uniform here: TrivialAugment is a good choice, "
            "ddas train --policy trivialaugment. More seeds may tell them apart."
        )

    def mean_of(self, name: str) -> str:
        """Return the mean score of a setting, with its standard error."""
        spread = self.spreads[name]
        shown = self.words.show(spread.mean)
        if spread.seeds < 2:
            return shown
        error = self.words.show(spread.error)
        unit = shown.lstrip("0123456789.-")  # once is enough
        return f"{shown.removesuffix(unit)} ± {error}"

    def to_json(self) -> dict[str, Any]:
        """Return the content of comparison.json."""
        policies = []
        for group in self.groups:
            scores = self.scores[group.name]
            policies.append(
                {
                    "name": group.name,
                    "policy": group.first.settings.get("policy"),
                    "scores": {str(seed): score for seed, score in scores.items()},
                    "validation": self.validated.get(group.name),
                    **self.spreads[group.name].to_json(),
                }
            )
        return {
            "version": VERSION,
            "score": self.words.score.tested,
            "headline": self.headline(),
            "subject": self.subject,
            "kept": self.kept,
            "policies": policies,
            "differences": [difference.to_json() for difference in self.differences],
        }


def capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
