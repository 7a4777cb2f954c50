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

LAST, BEST = "last.pt", "best.pt"
WEIGHTS_VERSION = 1


class TrainingJob:
    """A `Job`: metrics.jsonl has one line per epoch, last.pt the weights after the last one.

    With validation images, best.pt has those of the epoch that is best on them so far.
    """

    command, name = "train", "training"

    def __init__(self, training: Training) -> None:
        self.training, self.ranks, self.settings = training, training.ranks, training.settings
        self.total_steps, self.steps_per_epoch = training.total_steps, training.steps_per_epoch
        self._last: Metrics = {}

    @property
    def steps(self) -> int:
        return self.training.steps

    def images_until(self, step: int) -> int:
        return step * self.training.images_per_step

    @property
    def lines(self) -> int:
        return self.training.epoch

    @property
    def may_stop(self) -> bool:
        # Exchanging signals on a GPU means waiting for it.
        return self.ranks.count == 1 or self.training.looked_at

    def fingerprints(self) -> list[int]:
        training = self.training
        sets = (training.train, training.tested, training.validated)
        return [images.fingerprint() for images in sets if images is not None]

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
        return {BEST: self._weights(best)}

    def final_files(self) -> Files:
        return {LAST: self._weights(self.training.last or {})}

    def _weights(self, tested: dict[str, Any]) -> bytes:
        """Return the weights as a file that `torch.load(…, weights_only=True)` reads."""
        settings = self.training.settings
        content = {
            "version": WEIGHTS_VERSION,
            "model": settings.training.model,
            "class_names": list(self.training.train.class_names),
            "image_size": settings.data.image_size,
            **tested,
            "weights": self.training.weights(),
        }
        buffer = io.BytesIO()
        torch.save(content, buffer)
        return buffer.getvalue()

    def status(self) -> str:
        """Return the numbers of the last epoch; nothing in the first."""
        if not self._last:
            return ""
        score, tested = self.training.task.facts.score, ""
        if score.tested in self._last:
            tested = f", {score.name} {score.show(self._last[score.tested])}"
        p_tp = self._last["apply_probability"]
        return f"loss {self._last['loss']:.3f}{tested}, p_tp {p_tp:.3f}"

    def overview(self) -> list[str]:
        return self.training.task.overview()

    def greeting(self, folder: Path) -> str:
        model = self.training.settings.training.model
        return f"training {model} in {self.total_steps} steps: {folder}"

    def summary(self, folder: Path) -> list[str]:
        score = self.training.task.facts.score

        def words(tested: dict[str, Any], why: str) -> str:
            return f"{score.name} {score.show(tested[score.key])} after epoch {why}"

        last, best = self.training.last, self.training.best
        lines = [] if last is None else [words(last, f"{last['epoch'] + 1}, the last")]
        lines.append(f"weights: {folder / LAST}")
        if best is not None:
            lines.append(words(best, f"{best['epoch'] + 1}, the best on the validation images"))
            lines.append(f"weights: {folder / BEST}")
        return lines

    def state_dict(self) -> dict[str, Any]:
        return self.training.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.training.load_state_dict(state)
