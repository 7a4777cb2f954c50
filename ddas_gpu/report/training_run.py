"""Reading the folder of a training. `config.json` says that it is one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddas_gpu.policy import PolicySchedule
from ddas_gpu.report.run import Samples, _flat, _number, _read_config, _read_samples
from ddas_gpu.report.training_scores import ScoreWords, known, words_for

NUMBERS = ("apply_probability", "images")  # beside those in the table


@dataclass(frozen=True)
class TrainingRun:
    """All that the pages show of one training."""

    folder: Path
    words: ScoreWords
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
    def _scores(self) -> np.ndarray:
        return self.numbers[self.words.score.tested]

    @property
    def tested_epochs(self) -> np.ndarray:
        return known(self._scores)

    @property
    def best_epoch(self) -> int:
        return int(np.nanargmax(self._scores))

    @property
    def best_score(self) -> float:
        return float(self._scores[self.best_epoch])

    @property
    def last_score(self) -> float:
        return float(self._scores[self.tested_epochs[-1]])


def is_training(folder: Path) -> bool:
    """Whether a folder is that of a training; what is wrong with a folder, others say."""
    try:
        return _read_config(folder / "config.json").get("command") == "train"
    except (OSError, ValueError):
        return False


def load_training(folder: Path) -> TrainingRun:
    """Read the folder of a training, or raise a ValueError or OSError that says what is wrong."""
    config = _read_config(folder / "config.json")
    settings = dict(_flat(config.get("settings", {})))
    words = words_for(settings.get("data"))
    names = (*words.columns, *NUMBERS)
    lines = _read_lines(folder / "metrics.jsonl", names, words.score.tested)
    policy = folder / "policy.json"
    return TrainingRun(
        folder=folder,
        words=words,
        schedule=PolicySchedule.load(policy) if policy.exists() else None,
        settings=settings,
        versions=dict(_flat(config.get("versions", {}))),
        numbers={name: np.array([line[name] for line in lines]) for name in names},
        seconds=_sum_of(line["seconds"] for line in lines),
        samples=_read_samples(folder / "samples.npz"),
    )


def _read_lines(path: Path, names: tuple[str, ...], needed: str) -> list[dict[str, Any]]:
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]  # a killed writer may leave half a line
    numbered = enumerate(whole.splitlines(), 1)
    lines = [_parse(line, names, f"{path}, line {n}") for n, line in numbered]
    if not np.isfinite([line[needed] for line in lines]).any():
        raise ValueError(f"{path} has no tested epoch yet: there is nothing to draw")
    return lines


def _parse(line: bytes, names: tuple[str, ...], where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    seconds = record.get("seconds", {}) if isinstance(record, dict) else None
    if not isinstance(seconds, dict):
        raise ValueError(f"{where} must be an epoch with its seconds, not {str(record)[:60]}")
    epoch = {name: _number(record.get(name), name, where) for name in names}
    epoch["seconds"] = {stage: _number(value, stage, where) for stage, value in seconds.items()}
    return epoch


def _sum_of(parts: Any) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for stage, seconds in part.items():
            total[stage] = total.get(stage, 0.0) + seconds
    return total
