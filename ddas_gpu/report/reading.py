"""What the folders of searches and of trainings have in common, and how it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Samples:
    """A few clean images of the training set."""

    images: np.ndarray | list[np.ndarray]  # (N, H, W, 3) uint8; with boxes, any sizes
    names: list[str]
    boxes: list[np.ndarray] | None = None  # for detection: (n, 4) each, x0 y0 x1 y1 in pixels


@dataclass(frozen=True)
class RecordedRun:
    """What the pages show of every run."""

    folder: Path
    settings: dict[str, Any]
    versions: dict[str, Any]
    samples: Samples | None

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def epochs(self) -> int:
        """The number of finished epochs."""
        raise NotImplementedError

    @property
    def planned_epochs(self) -> int:
        """The number of epochs in the settings, or of the finished ones if there is none."""
        planned = self.settings.get("epochs")
        return planned if isinstance(planned, int) else self.epochs

    @property
    def unfinished(self) -> bool:
        return self.epochs < self.planned_epochs


def read_config(path: Path) -> dict[str, Any]:
    """Return the content of `config.json`, or {} if there is no such file."""
    if not path.exists():
        return {}
    config = parse_object(path.read_bytes(), str(path))
    for key in ("settings", "versions"):
        if not isinstance(config.get(key, {}), dict):
            raise ValueError(f"{path}: {key!r} must be a JSON object, not {config[key]!r}")
    return config


def parse_object(text: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object; a ValueError names `where`."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{where} must hold a JSON object, not {_short(content)}")
    return content


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings under dotted names.

    >>> flat({"seed": 1, "data": {"name": "digits", "size": 16}})
    {'seed': 1, 'data.name': 'digits', 'data.size': 16}
    """
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def number(record: Mapping[str, Any], name: str, where: str) -> float:
    """Return a number of a record; NaN if it is missing or too large for a chart."""
    value = record.get(name)
    if value is None:
        return np.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{where}: {name} must be a number, not {value!r}")
    return float(value) if abs(value) < 1e300 else np.nan


def seconds_of(record: Mapping[str, Any], where: str) -> dict[str, float]:
    """Return the seconds of each stage of a record."""
    seconds = record.get("seconds", {})
    if not isinstance(seconds, dict):
        raise ValueError(f"{where}: seconds must be a JSON object, not {seconds!r}")
    return {stage: number(seconds, stage, where) for stage in seconds}


def read_samples(path: Path) -> Samples | None:
    """Return the images in `samples.npz`, or None if there are none."""
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            if any(member.compress_type for member in archive.zip.infolist()):
                raise ValueError("it is compressed")  # never by us: it could be of any size
            images = archive["images"]
            names = [str(name) for name in archive["names"]]
            places = None
            if "boxes" in archive:
                places = archive["sizes"], archive["boxes"], archive["owners"]
    except Exception as error:  # zip files and headers of arrays fail in many ways if damaged
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
    """Crop the padding from the images, and give each its boxes."""
    shapes = (len(images), 2), (len(owners), 4), (len(owners),)
    if (sizes.shape, boxes.shape, owners.shape) != shapes:
        raise ValueError(f"{path}: sizes, boxes and owners do not fit the {len(images)} images")
    cropped = [np.ascontiguousarray(i[:h, :w]) for i, (h, w) in zip(images, sizes, strict=True)]
    return Samples(cropped, names, [boxes[owners == i] for i in range(len(images))])


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
