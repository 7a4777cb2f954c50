"""Reading the folder of a search.

Required is only `policy.json` or, for a search that is not finished, `config.json` and
`checkpoint.pt`; other files must be valid.
"""

from __future__ import annotations

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
from ddas_gpu.report.unfinished import schedule_so_far

LOSSES = ("loss", "clean_loss", "validation_loss")
NUMBERS = (*LOSSES, "apply_probability", "images")


@dataclass(frozen=True)
class Metrics:
    """`metrics.jsonl` as columns, one entry per step; NaN where a step has no such number."""

    epoch: np.ndarray
    numbers: dict[str, np.ndarray]
    seconds: dict[str, np.ndarray]
    truncated: bool = False
    gradients: str | None = None  # how they were compared, in a sentence

    def __len__(self) -> int:
        return len(self.epoch)

    @property
    def total_seconds(self) -> float:
        return float(sum(np.nansum(values) for values in self.seconds.values()))

    def by_epoch(self, name: str, epochs: int) -> np.ndarray:
        """Return the mean of a number over the steps of each epoch; NaN for an epoch without."""
        return np.array([_mean(self.numbers[name][self.epoch == e]) for e in range(epochs)])


@dataclass(frozen=True)
class Run(RecordedRun):
    """A search."""

    schedule: PolicySchedule
    metrics: Metrics

    @property
    def epochs(self) -> int:
        return len(self.schedule)


def load_run(folder: str | Path) -> Run:
    """Read a run folder, or raise a ValueError or OSError that says what is wrong with it."""
    folder = Path(folder)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise ValueError(f"{folder} {what}: give the folder a search wrote to (its --out)")
    config = read_config(folder / "config.json")
    schedule = _schedule(folder, config)
    settings = config.get("settings") or schedule.settings
    return Run(
        folder=folder,
        schedule=schedule,
        settings=flat(settings),
        versions=flat(config.get("versions", {})),
        metrics=_read_metrics(folder / "metrics.jsonl"),
        samples=read_samples(folder / "samples.npz"),
    )


def _schedule(folder: Path, config: dict[str, Any]) -> PolicySchedule:
    """Return the schedule of a search, or of its epochs so far."""
    policy = folder / "policy.json"
    if not policy.is_file():
        if config.get("command") != "search":
            raise ValueError(f"{folder} has no policy.json: it is not the folder of a search")
        return schedule_so_far(folder, config.get("settings", {}))
    try:
        return PolicySchedule.load(policy)
    except RecursionError as error:
        raise ValueError(f"{policy} is not a policy: {error}") from None


def _read_metrics(path: Path) -> Metrics:
    content = path.read_bytes() if path.exists() else b""
    lines = content.split(b"\n")
    last = lines.pop()  # what follows the last newline: empty, unless the writer was killed
    steps = [_parse(line, path, n) for n, line in enumerate(lines, 1)]
    truncated = False
    if last:
        try:
            steps.append(_parse(last, path, len(lines) + 1))
        except ValueError:
            truncated = True
    stages = dict.fromkeys(stage for step in steps for stage in step["seconds"])
    return Metrics(
        epoch=np.array([step["epoch"] for step in steps], dtype=np.int64),
        numbers={name: np.array([step[name] for step in steps]) for name in NUMBERS},
        seconds={
            stage: np.array([step["seconds"].get(stage, 0.0) for step in steps]) for stage in stages
        },
        truncated=truncated,
        gradients=next((step["gradients"] for step in steps if step["gradients"]), None),
    )


def _parse(line: bytes, path: Path, line_number: int) -> dict[str, Any]:
    where = f"{path}, line {line_number}"
    record = parse_object(line, where)
    epoch = record.get("epoch")
    # An epoch has at least one step, and a step has one line.
    if not isinstance(epoch, int) or not 0 <= epoch < line_number:
        raise ValueError(f"{where} must be a step with its epoch, from 0 on, not {epoch!r}")
    numbers = {name: number(record, name, where) for name in NUMBERS}
    gradients = record.get("gradients")
    return {
        "epoch": epoch,
        "seconds": seconds_of(record, where),
        "gradients": gradients if isinstance(gradients, str) else None,
        **numbers,
    }


def _mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else np.nan
