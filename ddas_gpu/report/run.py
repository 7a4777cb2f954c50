"""Reading a run folder. Only `policy.json` must be there; what is there must be sound."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddas_gpu.policy import PolicySchedule

LOSSES = ("loss", "clean_loss", "validation_loss")
NUMBERS = (*LOSSES, "apply_probability", "images")


@dataclass(frozen=True)
class Metrics:
    """`metrics.jsonl` as columns, one entry a step; NaN where a step has no such number."""

    epoch: np.ndarray
    numbers: dict[str, np.ndarray]
    seconds: dict[str, np.ndarray]
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.epoch)

    @property
    def total_seconds(self) -> float:
        return float(sum(np.nansum(values) for values in self.seconds.values()))

    def by_epoch(self, name: str, epochs: int) -> np.ndarray:
        """The mean of a number over the steps of each epoch; NaN for an epoch without any."""
        return np.array([_mean(self.numbers[name][self.epoch == e]) for e in range(epochs)])


@dataclass(frozen=True)
class Samples:
    """A few clean images of the training set."""

    images: np.ndarray | list[np.ndarray]  # (N, H, W, 3) uint8; with boxes of any sizes
    names: list[str]
    boxes: list[np.ndarray] | None = None  # of detection: (n, 4) each, x0 y0 x1 y1 in pixels


@dataclass(frozen=True)
class Run:
    """All that the pages show of one run."""

    folder: Path
    schedule: PolicySchedule
    settings: dict[str, Any]
    versions: dict[str, Any]
    metrics: Metrics
    samples: Samples | None

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def epochs(self) -> int:
        """Epochs in the schedule: those that ended."""
        return len(self.schedule.p_tp)

    @property
    def planned_epochs(self) -> int | None:
        planned = self.settings.get("epochs")
        return planned if isinstance(planned, int) else None

    @property
    def unfinished(self) -> bool:
        return self.planned_epochs is not None and self.epochs < self.planned_epochs


def load_run(folder: str | Path) -> Run:
    """Read a run folder, or raise a ValueError or OSError that says what is wrong with it."""
    folder = Path(folder)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise ValueError(f"{folder} {what}: give the folder a search wrote to (its --out)")
    policy = folder / "policy.json"
    if not policy.is_file():
        raise ValueError(
            f"{folder} has no policy.json: it is not the folder of a search, "
            "or the search has not come to its end"
        )
    try:
        schedule = PolicySchedule.load(policy)
    except RecursionError as error:
        raise ValueError(f"{policy} is not a policy: {error}") from None
    config = _read_config(folder / "config.json")
    settings = config.get("settings") or schedule.settings
    return Run(
        folder=folder,
        schedule=schedule,
        settings=dict(_flat(settings)),
        versions=dict(_flat(config.get("versions", {}))),
        metrics=_read_metrics(folder / "metrics.jsonl"),
        samples=_read_samples(folder / "samples.npz"),
    )


def _read_config(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        config = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(config).__name__}")
    for key in ("settings", "versions"):
        if not isinstance(config.get(key, {}), dict):
            raise ValueError(f"{path}: {key!r} must be a JSON object, not {config[key]!r}")
    return config


def _flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested settings under dotted names."""
    pairs = []
    for key, value in tree.items():
        nested = isinstance(value, dict) and value
        pairs.extend(_flat(value, f"{prefix}{key}.") if nested else [(f"{prefix}{key}", value)])
    return pairs


def _read_metrics(path: Path) -> Metrics:
    content = path.read_bytes() if path.exists() else b""
    lines = content.split(b"\n")
    last = lines.pop()  # what follows the last newline: nothing, unless the writer was killed
    steps = [_parse(line, path, number) for number, line in enumerate(lines, 1)]
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
    )


def _parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    where = f"{path}, line {number}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    epoch = record.get("epoch") if isinstance(record, dict) else None
    # An epoch has at least one step, and a step has one line.
    if not isinstance(epoch, int) or not 0 <= epoch < number:
        raise ValueError(f"{where} must be a step with its epoch, from 0 on, not {_short(record)}")
    seconds = record.get("seconds", {})
    if not isinstance(seconds, dict):
        raise ValueError(f"{where}: seconds must be a JSON object, not {seconds!r}")
    step = {name: _number(record.get(name), name, where) for name in NUMBERS}
    step["seconds"] = {stage: _number(value, stage, where) for stage, value in seconds.items()}
    return {"epoch": epoch, **step}


def _number(value: object, name: str, where: str) -> float:
    if value is None:
        return np.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{where}: {name} must be a number, not {value!r}")
    return float(value) if abs(value) < 1e300 else np.nan  # what no chart can show


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _read_samples(path: Path) -> Samples | None:
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            images = archive["images"]
            names = [str(name) for name in archive["names"]]
            places = None
            if "boxes" in archive:
                places = archive["sizes"], archive["boxes"], archive["owners"]
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} does not hold sample images: {error}") from None
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
        raise ValueError(
            f"{path}: images must be uint8 of shape (N, H, W, 3), "
            f"not {images.dtype} of shape {images.shape}"
        )
    if len(names) != len(images):
        raise ValueError(f"{path} holds {len(images)} images but {len(names)} names")
    if not images.size:
        return None
    return Samples(images, names) if places is None else _with_boxes(path, images, names, *places)


def _with_boxes(
    path: Path,
    images: np.ndarray,
    names: list[str],
    sizes: np.ndarray,
    boxes: np.ndarray,
    owners: np.ndarray,
) -> Samples:
    """Images out of the corners they lie in, each with its boxes."""
    shapes = (len(images), 2), (len(owners), 4), (len(owners),)
    if (sizes.shape, boxes.shape, owners.shape) != shapes:
        raise ValueError(f"{path}: sizes, boxes and owners do not fit the {len(images)} images")
    cropped = [np.ascontiguousarray(i[:h, :w]) for i, (h, w) in zip(images, sizes, strict=True)]
    return Samples(cropped, names, [boxes[owners == i] for i in range(len(images))])


def _mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else np.nan
