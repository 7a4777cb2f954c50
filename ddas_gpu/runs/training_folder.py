"""The folder of a training: a run's folder, with the best weights in it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ddas_gpu.files import write_atomically
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.runs.folder import POLICY, RunFolder, read_config
from ddas_gpu.train.settings import TrainSettings

if TYPE_CHECKING:
    from ddas_gpu.runs.folder import Images

BEST = "best.pt"
BEST_VERSION = 1


def read_settings(folder: Path) -> TrainSettings:
    """The settings of the training in `folder`."""
    return read_config(folder, "train", TrainSettings)


def read_schedule(folder: Path) -> PolicySchedule | None:
    """The schedule that the run in `folder` began with, whatever has become of its file since."""
    path = folder / POLICY
    return PolicySchedule.load(path) if path.exists() else None


class TrainingFolder(RunFolder):
    """Beside what every run has: best.pt, and policy.json, the schedule as it is replayed."""

    @classmethod
    def create(
        cls, settings: TrainSettings, schedule: PolicySchedule | None, images: Images
    ) -> TrainingFolder:
        def write(path: Path) -> None:
            if schedule is not None:
                schedule.save(path / POLICY)

        return cls.begin("train", settings, images, write)

    def save_best(self, content: dict[str, Any]) -> None:
        """Replace the best weights; `torch.load(…, weights_only=True)` reads them."""
        if not self.writes:
            return
        buffer = io.BytesIO()
        torch.save({"version": BEST_VERSION, **content}, buffer)
        write_atomically(self.path / BEST, buffer.getvalue())
