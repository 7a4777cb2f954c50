"""Reading the folder of a training. `config.json` says that it is one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddas_gpu.policy import PolicySchedule
from ddas_gpu.report.reading import (
    RecordedRun,
    flat,
    number,
    parse_object,
    read_config,
    read_samples,
    seconds_of,
)
from ddas_gpu.report.training_scores import ScoreWords, known, words_for

NUMBERS = ("apply_probability", "images")  # besides those in the table


@dataclass(frozen=True)
class TrainingRun(RecordedRun):
    """A training."""

    words: ScoreWords
    schedule: PolicySchedule | None
    numbers: dict[str, np.ndarray]  # one entry per epoch; NaN where there is none
    seconds: dict[str, float]  # by stage, summed over the epochs

    @property
    def epochs(self) -> int:
        return len(self.numbers["loss"])

    @property
    def _scores(self) -> np.ndarray:
        return self.numbers[self.words.score.tested]

    @property
    def tested_epochs(self) -> np.ndarray:
        return known(self._scores)

    @property
    def chosen_epoch(self) -> int:
        """The epoch whose weights count: the best on validation images if there are any.

        Otherwise the last that was tested. The test images choose nothing.
        """
        if self._is_validated:
            return int(np.nanargmax(self.numbers[self.words.score.validated]))
        return int(self.tested_epochs[-1])

    @property
    def _is_validated(self) -> bool:
        return bool(np.isfinite(self.numbers[self.words.score.validated]).any())

    @property
    def score(self) -> float:
        """The test score of the chosen epoch."""
        return float(self._scores[self.chosen_epoch])

    @property
    def validation(self) -> float | None:
        """The validation score of the chosen epoch; None without validation images."""
        if not self._is_validated:
            return None
        return float(self.numbers[self.words.score.validated][self.chosen_epoch])

    @property
    def chosen_words(self) -> str:
        """Return which epoch counts, and why."""
        why = "best on validation images" if self._is_validated else "the last"
        return f"epoch {self.chosen_epoch + 1}, {why}"


def made_by(folder: Path) -> Any:
    """Return the command that made a folder; None if it is damaged."""
    try:
        return read_config(folder / "config.json").get("command")
    except (OSError, ValueError):
        return None


def load_training(folder: Path) -> TrainingRun:
    """Read the folder of a training, or raise a ValueError or OSError that says what is wrong."""
    config = read_config(folder / "config.json")
    metrics = folder / "metrics.jsonl"
    records = _read_records(metrics)
    words = words_for(task_of(config, records.values()))
    numbers = {
        name: np.array([number(record, name, where) for where, record in records.items()])
        for name in (*words.columns, words.score.validated, *NUMBERS)
    }
    if not np.isfinite(numbers[words.score.tested]).any():
        raise ValueError(f"{metrics} has no tested epoch yet: there is nothing to draw")
    policy = folder / "policy.json"
    return TrainingRun(
        folder=folder,
        words=words,
        schedule=PolicySchedule.load(policy) if policy.exists() else None,
        settings=flat(config.get("settings", {})),
        versions=flat(config.get("versions", {})),
        numbers=numbers,
        seconds=_sums(seconds_of(record, where) for where, record in records.items()),
        samples=read_samples(folder / "samples.npz"),
    )


def task_of(config: dict[str, Any], records: Iterable[dict[str, Any]]) -> str:
    """Return the task of a training: the one its config names, else the one its metrics show.

    Versions before 0.2.0 wrote no task.
    """
    task = config.get("task")
    if isinstance(task, str):
        return task
    return "detection" if any("test_mAP" in record for record in records) else "classification"


def _read_records(path: Path) -> dict[str, dict[str, Any]]:
    """Return {where it stands: the record of an epoch}."""
    content = path.read_bytes() if path.exists() else b""
    *lines, _ = content.split(b"\n")  # a killed writer may leave half a line at the end
    numbered = ((f"{path}, line {n}", line) for n, line in enumerate(lines, 1))
    return {where: parse_object(line, where) for where, line in numbered}


def _sums(parts: Iterable[dict[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for stage, seconds in part.items():
            total[stage] = total.get(stage, 0.0) + seconds
    return total
