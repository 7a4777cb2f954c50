"""What every data set on disk looks like to the rest: labels first, pixels on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Images = np.ndarray | list[np.ndarray]  # uint8 RGB: (N, H, W, 3), or a list of HWC of any size


class Source(Protocol):
    """Images of a data set that need not be in memory, with their labels, which are."""

    labels: np.ndarray  # (N,) int64, an index into class_names
    class_names: tuple[str, ...]

    def read(self, indices: Sequence[int] | np.ndarray) -> Images:
        """The images at `indices`, in that order."""
        ...

    def name_of(self, index: int) -> str:
        """What the image is called: its file, or its number."""
        ...


@dataclass(frozen=True)
class ArraySource:
    """A data set that comes as one array (N, H, W, 3)."""

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]

    def read(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        return self.images[np.asarray(indices)]

    def name_of(self, index: int) -> str:
        return str(index)
