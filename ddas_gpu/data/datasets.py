"""A data set in memory that hands out batches under its standard transform."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ddas_gpu.data.clean import ALL
from ddas_gpu.data.sources import Images


@dataclass(frozen=True)
class DataSet:
    """Images, their labels, and the part of the standard transform that comes before a policy."""

    images: Images
    labels: np.ndarray
    class_names: tuple[str, ...]
    transform: Callable[[Images, np.random.Generator, slice], np.ndarray]
    members: tuple[str, ...] = ()  # what each image is called in the data set, for the record

    def __len__(self) -> int:
        return len(self.labels)

    def batch(
        self, indices: np.ndarray, generator: np.random.Generator, rows: slice = ALL
    ) -> np.ndarray:
        """The images at `indices`, cropped and flipped: uint8 (B, H, W, 3).

        With `rows` only these of them, the same to the byte.
        """
        if isinstance(self.images, np.ndarray):
            chosen: Images = self.images[indices]
        else:
            chosen = [self.images[index] for index in indices]
        return np.ascontiguousarray(self.transform(chosen, generator, rows))

    def turned(self) -> DataSet:
        """Every image rotated by 90°, as Pillow's ROTATE_90 does: the paper's sanity check."""
        images = [np.rot90(image) for image in self.images]
        same = isinstance(self.images, np.ndarray)
        return dataclasses.replace(self, images=np.stack(images) if same else images)

    def fingerprint(self) -> int:
        """A number that tells this data from other data."""
        checksum = zlib.crc32(np.ascontiguousarray(self.labels))
        for image in self.images:
            checksum = zlib.crc32(np.ascontiguousarray(image), checksum)
        return checksum
