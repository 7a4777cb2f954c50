"""The folder of a training: a run's folder, with the best weights in it."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from ddas_gpu.data import DataSet
from ddas_gpu.files import write_atomically
from ddas_gpu.policy import PolicySchedule, versions
from ddas_gpu.runs import CONFIG, POLICY, SAMPLES, RunFolder, _new_folder, _samples
from ddas_gpu.training_settings import TrainSettings

BEST = "best.pt"
BEST_VERSION = 1


def read_settings(folder: Path) -> TrainSettings:
    """The settings of the training in `folder`."""
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"{folder} holds no run to resume: it has no {CONFIG}")
    try:
        content = json.loads(path.read_bytes())
        if content["command"] != "train" or content["version"] != 1:
            raise ValueError(f"a {content['command']} of version {content['version']}")
        return TrainSettings.from_json(content["settings"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not the configuration of a training: {error}") from None


def read_schedule(folder: Path) -> PolicySchedule | None:
    """The schedule that the run in `folder` began with, whatever has become of its file since."""
    path = folder / POLICY
    return PolicySchedule.load(path) if path.exists() else None


class TrainingFolder(RunFolder):
    """Beside what every run has: best.pt, and policy.json, the schedule as it is replayed."""

    @classmethod
    def create(
        cls, settings: TrainSettings, schedule: PolicySchedule | None, samples: DataSet
    ) -> TrainingFolder:
        """A new folder, at --out or at the next free runs/DATA-NUMBER."""
        path = _new_folder(settings)
        try:
            config = {
                "version": 1,
                "command": "train",
                "settings": settings.to_json(),
                "versions": versions(),
            }
            text = json.dumps(config, indent=2, ensure_ascii=False)
            write_atomically(path / CONFIG, f"{text}\n".encode())
            write_atomically(path / SAMPLES, _samples(samples))
            if schedule is not None:
                schedule.save(path / POLICY)
            return cls(path)
        except BaseException:
            shutil.rmtree(path)
            raise

    def save_best(self, content: dict[str, Any]) -> None:
        """Replace the best weights; `torch.load(…, weights_only=True)` reads them."""
        if not self.writes:
            return
        buffer = io.BytesIO()
        torch.save({"version": BEST_VERSION, **content}, buffer)
        write_atomically(self.path / BEST, buffer.getvalue())
