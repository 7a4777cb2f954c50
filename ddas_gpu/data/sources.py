"""Images of a data set, known by their number: in memory, in files, or in records.

`Coco` (data/coco.py) is the fourth kind: files with boxes. All but records can say how many
images they hold, take a subset, name each image, and return a checksum of the data.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

Pixels = np.ndarray | list[np.ndarray]  # uint8 RGB: (N, H, W, 3), or a list of HWC of any sizes

# What both decoders read, Pillow and DALI. Pillow would also open others, whatever their file is
# called: an EPS starts Ghostscript.
FORMATS = ("JPEG", "PNG", "BMP", "PPM", "TIFF", "WEBP")
# People have these as well, and are to be told that they are not read.
FOREIGN = ("GIF",)
FOREIGN_SUFFIXES = frozenset(f".{name.lower()}" for name in FOREIGN)

# The image files that are looked for in folders.
SUFFIXES = FOREIGN_SUFFIXES | {
    *(".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".pbm", ".tif", ".tiff", ".webp")
}
# What systems leave beside images: ._0001.jpg, .DS_Store, the folder of a Mac's zip.
HIDDEN = ("__MACOSX", "@eaDir")

Own = TypeVar("Own", bound="Source")


class Source(Protocol):
    """What every data set of known size can do."""

    @property
    def class_names(self) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...

    def subset(self: Own, indices: np.ndarray) -> Own:
        """Return the images at `indices`, in that order."""
        ...

    def members(self) -> tuple[str, ...]:
        """Return the name of each image: its file, or its number."""
        ...

    def fingerprint(self) -> int:
        """Return a checksum by which a resumed run recognises its data."""
        ...


@dataclass(frozen=True)
class ImageArrays:
    """Decoded images: one array (N, H, W, 3), or a list of (H, W, 3) of any sizes."""

    images: Pixels
    labels: np.ndarray  # (N,) int64, an index into class_names
    class_names: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # by default the images' numbers

    def __post_init__(self) -> None:
        if not len(self.images):
            raise ValueError("there are no images")
        shapes = {image.shape for image in self.images}
        dtypes = {image.dtype for image in self.images}
        if dtypes != {np.dtype(np.uint8)} or not all(map(_is_rgb, shapes)):
            found = self.images
            kind = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else dtypes
            raise ValueError(f"images must be uint8 (N, H, W, 3), not {kind}")
        if self.labels.shape != (len(self.images),):
            raise ValueError(
                f"{len(self.images)} images, but labels of the shape {self.labels.shape}"
            )

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, indices: np.ndarray) -> ImageArrays:
        return dataclasses.replace(
            self,
            images=take(self.images, indices),
            labels=self.labels[indices],
            names=tuple(self.name_of(int(index)) for index in indices),
        )

    def name_of(self, index: int) -> str:
        return self.names[index] if self.names else str(index)

    def members(self) -> tuple[str, ...]:
        return tuple(self.name_of(index) for index in range(len(self)))

    def fingerprint(self) -> int:
        checksum = checksum_of(self.labels)
        for image in self.images:
            checksum = checksum_of(image, checksum)
        return checksum


@dataclass(frozen=True)
class ImageFiles:
    """Encoded images, one per file."""

    files: Sequence[Path]
    labels: np.ndarray  # (N,) int64, an index into class_names
    class_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.files)

    def subset(self, indices: np.ndarray) -> ImageFiles:
        files = [self.files[index] for index in indices]
        return dataclasses.replace(self, files=files, labels=self.labels[indices])

    def members(self) -> tuple[str, ...]:
        return tuple(f"{file.parent.name}/{file.name}" for file in self.files)

    def fingerprint(self) -> int:
        """Return a checksum of names, sizes and labels: reading the pixels takes an epoch."""
        checksum = checksum_of(self.labels)
        for name, file in zip(self.members(), self.files, strict=True):
            fact = f"{name} {file.stat().st_size}\n".encode(errors="surrogateescape")
            checksum = zlib.crc32(fact, checksum)
        return checksum


@dataclass(frozen=True)
class Records:
    """Many images per file; only DALI's reader knows how many there are."""

    files: Sequence[Path]
    kind: str  # "webdataset" or "tfrecord"


Labelled = ImageArrays | ImageFiles  # images of a known number, with one label each


def is_hidden(path: Path) -> bool:
    """Return whether a file or folder is not the user's own."""
    return path.name.startswith(".") or path.name in HIDDEN


def is_image(path: Path) -> bool:
    """Return whether a file is taken for an image, by its name."""
    return path.suffix.lower() in SUFFIXES and not is_hidden(path)


def checksum_of(array: np.ndarray, start: int = 0) -> int:
    """Return the CRC-32 of an array's bytes, continued from the checksum `start`."""
    return zlib.crc32(np.ascontiguousarray(array).data, start)


def take(images: Pixels, indices: Sequence[int] | np.ndarray) -> Pixels:
    """Return the images at `indices`."""
    if isinstance(images, np.ndarray):
        return images[np.asarray(indices)]
    return [images[index] for index in indices]


def require_same_classes(train: Any, other: Any, what: str) -> None:
    """Raise a ValueError that names the classes only one of two sources has."""
    if train.class_names != other.class_names:
        differ = sorted(set(train.class_names) ^ set(other.class_names))
        named = ", ".join(differ[:5]) or "them in another order"
        raise ValueError(
            f"{what} must have the same classes as the training images, but only one of them "
            f"has {named}"
        )


def _is_rgb(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[2] == 3 and 0 not in shape
