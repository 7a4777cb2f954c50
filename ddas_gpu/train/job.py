"""A training as a job: what it writes to its folder, and what it prints."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from ddas_gpu.distributed.agreement import digest
from ddas_gpu.runs.job import Files, Metrics
from ddas_gpu.runs.run_folder import POLICY, SAMPLES, archive
from ddas_gpu.train.loop import Training

BEST = "best.pt"
BEST_VERSION = 1


class TrainingJob:
    """A `Job`: metrics.jsonl has one line per epoch, best.pt the best weights so far."""

    command, name = "train", "training"

    def __init__(self, training: Training) -> None:
        self.training, self.ranks, self.settings = training, training.ranks, training.settings
        self.total_steps, self.steps_per_epoch = training.total_steps, training.steps_per_epoch
        self.images_per_step = training.images_per_step
        self._last: Metrics = {}

    @property
    def steps(self) -> int:
        return self.training.steps

    @property
    def lines(self) -> int:
        return self.training.epoch

    @property
    def may_stop(self) -> bool:
        # Exchanging signals on a GPU means waiting for it.
        return self.ranks.count == 1 or self.training.looked_at

    def fingerprints(self) -> list[int]:
        return [self.training.train.fingerprint(), self.training.tested.fingerprint()]

    def facts(self) -> dict[str, Any]:
        schedule = self.training.schedule
        return {"policies": schedule and digest(schedule.p_tp, schedule.p_o)}

    def first_files(self) -> Files:
        """Return samples.npz, and policy.json: a copy of the schedule, whose file may change."""
        files = {SAMPLES: archive(self.training.task.samples(self.training.train))}
        if self.training.schedule is not None:
            files[POLICY] = self.training.schedule.to_bytes()
        return files

    def start(self) -> None:
        """Do nothing: the ranks copy the weights of rank 0 in their first step."""

    def step(self) -> None:
        self.training.step()

    def finish_epoch(self) -> Metrics:
        self._last = self.training.finish_epoch()
        return self._last

    def epoch_files(self) -> Files:
        best = self.training.best
        if best is None or best["epoch"] != self._last["epoch"]:
            return {}
        settings = self.training.settings
        content = {
            "version": BEST_VERSION,
            "model": settings.training.model,
            "class_names": list(self.training.train.class_names),
            "image_size": settings.data.image_size,
            **best,
            "weights": self.training.weights(),
        }
        buffer = io.BytesIO()
        torch.save(content, buffer)  # `torch.load(…, weights_only=True)` reads it
        return {BEST: buffer.getvalue()}

    def final_files(self) -> Files:
        return {}

    def status(self) -> str:
        """Return the numbers of the last epoch; nothing in the first."""
        if not self._last:
            return ""
        score, tested = self.training.task.facts.score, ""
        if score.tested in self._last:
            this, best = (score.show(self._last[key]) for key in (score.tested, score.best))
            tested = f", {score.name} {this} (best {best})"
        p_tp = self._last["apply_probability"]
        return f"loss {self._last['loss']:.3f}{tested}, p_tp {p_tp:.3f}"

    def overview(self) -> list[str]:
        return self.training.task.overview()

    def greeting(self, folder: Path) -> str:
        model = self.training.settings.training.model
        return f"training {model} in {self.total_steps} steps: {folder}"

    def summary(self, folder: Path) -> list[str]:
        best, score = self.training.best, self.training.task.facts.score
        assert best is not None  # the last epoch is always tested
        return [
            f"best {score.name}: {score.show(best[score.key])}, after epoch {best['epoch'] + 1}",
            f"weights: {folder / BEST}",
        ]

    def state_dict(self) -> dict[str, Any]:
        return self.training.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.training.load_state_dict(state)
