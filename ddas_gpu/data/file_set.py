"""Images that stay in their files: DALI decodes, crops and mirrors each batch of a search.

On a GPU, if the search runs there: the pixels are made where the op bank takes them.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddas_gpu.data.clean import ALL
from ddas_gpu.data.folder import read_image

if TYPE_CHECKING:
    import torch

    from ddas_gpu.pipelines.searching import SearchImages

LARGEST_BATCH = 1024
SAMPLE = 256  # images that the mean and the deviation are taken from


@dataclass(frozen=True)
class FileSet:
    """Like `DataSet`, but nothing is kept in memory."""

    files: Sequence[Path]
    labels: np.ndarray
    class_names: tuple[str, ...]
    size: int
    training: bool  # a random part of an image, mirrored if `flip`; else the middle
    flip: bool
    turns: int = 0  # by 90°
    device: str = "cpu"  # "cpu" or "cuda"

    def check(self) -> None:
        """DALI cannot skip a broken file: name them before the search begins."""
        from ddas_gpu.data.scanning import describe, scan_files

        bad = scan_files(self.files)
        if bad:
            raise ValueError(f"{describe(bad)}: replace them or take them out of the folder")

    def __len__(self) -> int:
        return len(self.labels)

    def batch(
        self, indices: np.ndarray, generator: np.random.Generator, rows: slice = ALL
    ) -> torch.Tensor:
        """The images at `indices`, or `rows` of them, cropped and mirrored: uint8 (B, H, W, 3)."""
        batch = self._decoder.batch(indices, generator, rows)
        return batch.rot90(self.turns, (1, 2)).contiguous()

    @cached_property
    def _decoder(self) -> SearchImages:
        from ddas_gpu.pipelines.searching import SearchImages

        return SearchImages(
            self.files,
            self.labels,
            self.class_names,
            size=self.size,
            training=self.training,
            batch_size=min(LARGEST_BATCH, len(self.files)),
            flip=self.flip,
            device="gpu" if self.device == "cuda" else "cpu",
        )

    @cached_property
    def images(self) -> list[np.ndarray]:
        """Some of the images, decoded, to take the mean and the deviation from."""
        chosen = np.unique(np.linspace(0, len(self) - 1, SAMPLE).astype(int))
        return [read_image(self.files[i], self.size) for i in chosen]

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(f"{file.parent.name}/{file.name}" for file in self.files)

    def turned(self) -> FileSet:
        """Every image rotated by 90°, as Pillow's ROTATE_90 does: the paper's sanity check."""
        return dataclasses.replace(self, turns=self.turns + 1)

    def fingerprint(self) -> int:
        """A number that tells this data from other data: names and sizes of the files."""
        checksum = zlib.crc32(np.ascontiguousarray(self.labels))
        for file in self.files:
            checksum = zlib.crc32(f"{file.name} {file.stat().st_size}\n".encode(), checksum)
        return checksum
