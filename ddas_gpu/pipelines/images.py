"""What a pipeline may read: image files, arrays in memory, WebDataset tars, TFRecords."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddas_gpu.data.folder import FolderSource
from ddas_gpu.data.scanning import NOT_IN_DALI, BadImage, describe, scan_files

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_DEVIATION = (58.395, 57.12, 57.375)

ON_BAD_FILES = (None, "skip", "stop")
TARS = frozenset((".tar",))
TFRECORDS = frozenset((".tfrecord", ".tfrecords"))


@dataclass(frozen=True)
class ImageFiles:
    """Encoded images, one a file."""

    files: Sequence[Path]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.files)


@dataclass(frozen=True)
class ImageArrays:
    """Decoded images of one size, (N, H, W, 3) uint8."""

    images: np.ndarray
    labels: np.ndarray

    def __post_init__(self) -> None:
        shape, dtype = self.images.shape, self.images.dtype
        if dtype != np.uint8 or len(shape) != 4 or shape[3] != 3 or 0 in shape:
            raise ValueError(f"images must be uint8 (N, H, W, 3), not {dtype} {shape}")
        if self.labels.shape != shape[:1]:
            raise ValueError(f"{shape[0]} images, but labels of the shape {self.labels.shape}")

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class Records:
    """Many images a file; only DALI's reader knows how many there are."""

    files: Sequence[Path]
    kind: str  # "webdataset" or "tfrecord"


Images = ImageFiles | ImageArrays | Records


def open_images(root: Any, on_bad_files: str | None = None) -> Images:
    """`root` is a folder with a folder of images a class; one or more .tar (WebDataset) or
    .tfrecord files, or a folder of them; a pair of arrays (images, labels); or an opened source
    of `ddas_gpu.data`.

    on_bad_files: None trusts the files; "skip" and "stop" look through all image files first and
    go on without the unreadable ones, with a warning that names them, or raise a ValueError.
    """
    if on_bad_files not in ON_BAD_FILES:
        raise ValueError(f"on_bad_files is one of {ON_BAD_FILES}, not {on_bad_files!r}")
    if isinstance(root, (str, Path)):
        return _open_path(Path(root), on_bad_files)
    if hasattr(root, "files") and hasattr(root, "labels"):
        return _checked(ImageFiles(root.files, np.asarray(root.labels)), on_bad_files)
    if hasattr(root, "images") and hasattr(root, "labels"):
        root = (root.images, root.labels)
    if isinstance(root, (tuple, list)) and root:
        if all(isinstance(file, (str, Path)) for file in root):
            return _open_records([Path(file) for file in root])
        if len(root) == 2:
            return ImageArrays(*map(np.asarray, root))
    raise TypeError(
        "images come from a folder, from .tar or .tfrecord files, or as (images, labels), "
        f"not from {type(root).__name__}"
    )


def _open_path(root: Path, on_bad_files: str | None) -> Images:
    if root.is_file():
        return _open_records([root])
    if not root.is_dir():
        raise ValueError(f"there is no folder or file {root}")
    records = sorted(f for f in root.iterdir() if f.suffix in TARS | TFRECORDS)
    if records:
        return _open_records(records)
    source = FolderSource(root)
    return _checked(ImageFiles(source.files, source.labels), on_bad_files)


def _open_records(files: list[Path]) -> Records:
    for file in files:
        if not file.is_file():
            raise ValueError(f"there is no file {file}")
    for kind, suffixes in (("webdataset", TARS), ("tfrecord", TFRECORDS)):
        if all(file.suffix in suffixes for file in files):
            return Records(files, kind)
    raise ValueError(f"neither .tar nor .tfrecord files alone: {', '.join(map(str, files))}")


def _checked(images: ImageFiles, on_bad_files: str | None) -> ImageFiles:
    """Without the files that cannot be read, or stopped by them."""
    if on_bad_files is not None:
        bad = scan_files(images.files)
    else:  # by their names at least
        foreign = tuple(f".{name.lower()}" for name in NOT_IN_DALI)
        named_so = (file for file in images.files if file.suffix.lower() in foreign)
        bad = [BadImage(file, "DALI does not read this format") for file in named_so]
    if not bad:
        return images
    if on_bad_files != "skip":
        raise ValueError(
            f"{describe(bad)}; replace such files, or leave them out with on_bad_files='skip'"
        )
    warnings.warn(f"going on without {describe(bad)}", RuntimeWarning, stacklevel=5)
    left_out = {image.path for image in bad}
    keep = [i for i, file in enumerate(images.files) if file not in left_out]
    if not keep:
        raise ValueError(f"nothing is left to read: {describe(bad)}")
    return ImageFiles([images.files[i] for i in keep], images.labels[keep])
