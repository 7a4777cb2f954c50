"""Which part of a batch a rank computes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Share(NamedTuple):
    """Images `start` to `stop` of a batch of `whole`.

    What happens to an image is drawn by its place in the whole batch, so it does not matter how
    many ranks there are or which of them computes it.
    """

    start: int
    stop: int
    whole: int

    @classmethod
    def of_all(cls, count: int) -> Share:
        return cls(0, count, count)

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def rows(self) -> slice:
        return slice(self.start, self.stop)

    @property
    def places(self) -> np.ndarray:
        return np.arange(self.start, self.stop)
