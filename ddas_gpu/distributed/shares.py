"""The part of a batch that a rank computes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Share(NamedTuple):
    """Images `start` to `stop` of a batch of `whole`.

    The draws for an image depend on its place in the whole batch, not on the number of ranks or on
    the rank that computes it.
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
