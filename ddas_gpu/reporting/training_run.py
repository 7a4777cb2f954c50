"""Reading the folder of a training. `config.json` says that it is one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddas_gpu.policy import PolicySchedule
from ddas_gpu.reporting.run import Samples, _flat, _number, _read_config, _read_samples

NUMBERS = (
    *("loss", "accuracy", "test_loss", "test_accuracy", "test_top5_accuracy"),
    *("apply_probability", "learning_rate", "images"),
)


@dataclass(frozen=True)
class TrainingRun:
    """All that the pages show of one training."""

    folder: Path
    schedule: PolicySchedule | None
    settings: dict[str, Any]
    versions: dict[str, Any]
    numbers: dict[str, np.ndarray]  # one entry an epoch; NaN where there is none
    seconds: dict[str, float]  # by stage, in all
    samples: Samples | None

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def epochs(self) -> int:
        """Epochs that ended."""
        return len(self.numbers["loss"])

    @property
    def unfinished(self) -> bool:
        planned = self.settings.get("epochs")
        return isinstance(planned, int) and self.epochs < planned

    @property
    def best_epoch(self) -> int:
        return int(np.nanargmax(self.numbers["test_accuracy"]))

    @property
    def best_accuracy(self) -> float:
        return float(self.numbers["test_accuracy"][self.best_epoch])


def is_training(folder: Path) -> bool:
    """Whether a folder is that of a training; what is wrong with a folder, others say."""
    try:
        return _read_config(folder / "config.json").get("command") == "train"
    except (OSError, ValueError):
        return False


def load_training(folder: Path) -> TrainingRun:
    """Read the folder of a training, or raise a ValueError or OSError that says what is wrong."""
    config = _read_config(folder / "config.json")
    lines = _read_lines(folder / "metrics.jsonl")
    policy = folder / "policy.json"
    return TrainingRun(
        folder=folder,
        schedule=PolicySchedule.load(policy) if policy.exists() else None,
        settings=dict(_flat(config.get("settings", {}))),
        versions=dict(_flat(config.get("versions", {}))),
        numbers={name: np.array([line[name] for line in lines]) for name in NUMBERS},
        seconds=_sum_of(line["seconds"] for line in lines),
        samples=_read_samples(folder / "samples.npz"),
    )


def _read_lines(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]  # a killed writer may leave half a line
    lines = [_parse(line, f"{path}, line {n}") for n, line in enumerate(whole.splitlines(), 1)]
    if not lines or not np.isfinite([line["test_accuracy"] for line in lines]).any():
        raise ValueError(f"{path} has no tested epoch yet: there is nothing to draw")
    return lines


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    seconds = record.get("seconds", {}) if isinstance(record, dict) else None
    if not isinstance(seconds, dict):
        raise ValueError(f"{where} must be an epoch with its seconds, not {str(record)[:60]}")
    epoch = {name: _number(record.get(name), name, where) for name in NUMBERS}
    epoch["seconds"] = {stage: _number(value, stage, where) for stage, value in seconds.items()}
    return epoch


def _sum_of(parts: Any) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for stage, seconds in part.items():
            total[stage] = total.get(stage, 0.0) + seconds
    return total
