"""A search as a job: what it writes to its folder, and what it prints."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ddas_gpu.data.catalog import CUSTOM
from ddas_gpu.distributed.agreement import digest, require_same
from ddas_gpu.distributed.ranks import in_touch
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.report.next_steps import data_flags, without_search
from ddas_gpu.runs.job import Files, Metrics
from ddas_gpu.runs.run_folder import POLICY, SAMPLES, SPLIT, archive
from ddas_gpu.search.algorithm import Search
from ddas_gpu.search.alpha import apply_rate
from ddas_gpu.search.settings import SearchSettings
from ddas_gpu.search.verdict import AS_UNIFORM, Apply, Trials, judge
from ddas_gpu.space import SearchSpace
from ddas_gpu.tasks.facts import facts_of
from ddas_gpu.tasks.same_candidates import sameness

VALIDATION_SCORE = "validation_accuracy"


class SearchJob:
    """A `Job`: metrics.jsonl has one line per step, policy.json is written at the end."""

    command = name = "search"
    may_stop = True

    def __init__(self, search: Search, quiet: bool = False) -> None:
        self.quiet = quiet
        self.search, self.ranks, self.settings = search, search.ranks, search.settings
        self.total_steps, self.steps_per_epoch = search.total_steps, search.steps_per_epoch
        self._last: Metrics = {}
        self._measured: list[float] = []  # of the validation batches of this epoch, by this process

    @property
    def steps(self) -> int:
        return self.search.steps

    def images_until(self, step: int) -> int:
        return self.search.images_until(step)

    @property
    def lines(self) -> int:
        return self.search.searched

    def fingerprints(self) -> list[int]:
        return self.search.fingerprints()

    def facts(self) -> dict[str, Any]:
        return {}

    def first_files(self) -> Files:
        sets = {"train": self.search.train, "validation": self.search.validation}
        split = {name: images.members() for name, images in sets.items()}
        text = json.dumps(split, ensure_ascii=False)
        samples = archive(self.search.task.samples(self.search.train))
        return {SAMPLES: samples, SPLIT: f"{text}\n".encode()}

    def start(self) -> None:
        self.ranks.copy_from_first(self.search.model.state_dict().values())

    def step(self) -> Metrics | None:
        first, epoch = self.search.plan is None, self._last.get("epoch")
        with in_touch():
            line = self.search.step()
        if line is None:  # in the warm-up
            return None
        self._last = line
        if self._last["epoch"] != epoch:
            self._measured = []
        self._measured += [v for name, v in self._last.items() if name == VALIDATION_SCORE]
        if first and self.ranks.first and not self.quiet:
            print(self.search.plan, file=sys.stderr)
        return self._last

    def finish_epoch(self) -> None:
        require_same_state(self.search)

    def epoch_files(self) -> Files:
        return {}

    def final_files(self) -> Files:
        return {POLICY: self.schedule().to_bytes()}

    def schedule(self) -> PolicySchedule:
        """Return the policy with its verdict."""
        return replace(self.search.schedule(), verdict=self.judged)

    def status(self) -> str:
        if not self._last:
            return "warm-up on clean images"
        loss, p_tp = self._last["loss"], self._last["apply_probability"]
        top = top_candidates(self.search.space, self.search.parameters.op_probabilities, 2)
        return f"loss {loss:.3f}{self._validation()}, p_tp {p_tp:.3f}, top {top}"

    def _validation(self) -> str:
        """Return the mean accuracy of this epoch's validation batches, where it is measured."""
        if not self._measured:
            return ""
        return f", validation accuracy {np.mean(self._measured):.1%}"

    def overview(self) -> list[str]:
        data, found = self.settings.data, self.search.task.found
        grey = found is not None and found.looks.grey
        same = sameness(self.search.space, data.image_size, flip=data.flip, grey=grey)
        return [*self.search.task.overview(), *([f"note: {same}"] if same else [])]

    def greeting(self, folder: Path) -> str:
        count = len(self.search.space)
        warm = self.settings.policy.warmup_epochs
        after = f" after {warm} epoch{'s' * (warm > 1)} of warm-up" if warm else ""
        return f"searching {count} candidates in {self.search.search_steps} steps{after}: {folder}"

    def summary(self, folder: Path) -> list[str]:
        space, parameters = self.search.space, self.search.parameters
        p_o = self.search.schedule().p_o[-1]
        low, high = self.judged.get("apply_probability", (None, None))
        interval = "" if low is None else f" (95 % interval {low:.2f} … {high:.2f})"
        return [
            f"probability to augment: {parameters.apply_probability:.3f}{interval}",
            f"most probable:  {top_candidates(space, p_o, 5)}  (1.00× is uniform)",
            f"least probable: {top_candidates(space, -p_o, 5)}",
            f"verdict: {self.judged['sentence']}",
            *advice(self.judged, self.search.settings),
            f"policy: {folder / POLICY}",
        ]

    @cached_property
    def judged(self) -> dict[str, Any]:
        """What can be said of the candidates, after the last step."""
        return judge(self.search.space, [trials_of(self.search)], [apply_of(self.search)])

    def state_dict(self) -> dict[str, Any]:
        return self.search.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.search.load_state_dict(state)


def trials_of(search: Search) -> Trials:
    """Return what the steps so far have tried."""
    return Trials(*search.trials.arrays())


def apply_of(search: Search) -> Apply:
    """Return how α_tp has learned."""
    policy = search.settings.policy
    end = search.parameters.apply_probability
    rate = apply_rate(policy.lr_apply, search.search_steps)
    return Apply(policy.apply_probability, rate, policy.adam_betas, end)


def top_candidates(space: SearchSpace, probabilities: np.ndarray, count: int) -> str:
    """Name the most probable candidates; negate the probabilities for the least probable."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    return ", ".join(f"{space[i]} {abs(probabilities[i]) * len(space):.2f}×" for i in order)


def require_same_state(search: Search) -> None:
    """Raise `Refused` if α or the weights differ between ranks in a single bit.

    The state must then not be saved: the last checkpoint is the last one to trust.
    """
    if search.ranks.count == 1:
        return
    alpha = digest(search.parameters.alpha_tp, search.parameters.alpha_o)
    facts = {"policy parameters (α)": alpha, "weights": digest(*search.learner.weights)}
    when = f" after epoch {search.steps // search.steps_per_epoch}"
    require_same(search.ranks, facts, when)


def advice(judged: dict[str, Any], settings: SearchSettings) -> list[str]:
    """Say what to use where no policy is told apart from uniform, with the command."""
    if judged["told"]:
        return []
    name, choice = without_search(facts_of(settings.spec.task).has_boxes)
    if settings.spec is CUSTOM:
        return [f"{AS_UNIFORM}: {choice} is a good choice"]
    command = f"ddas train{data_flags(settings.data.data, settings.data.root)} --policy {name}"
    return [f"{AS_UNIFORM}: {choice} is a good choice: {command}"]
