"""The probabilities by epoch, and the draw of an image's ops."""

from __future__ import annotations

import multiprocessing
from typing import Any

from ddas_gpu.export.parts.constants import CANDIDATES, DEPTH, P_O, P_TP, SIGNED, Argument


class Schedule:
    """p_tp and p_o of every epoch, stretched to the `epochs` of a training (nearest neighbour)."""

    def __init__(self, epochs: int) -> None:
        if epochs < 1:
            raise ValueError(f"a training has at least 1 epoch, not {epochs}")
        self.epochs = epochs
        # In shared memory: set_epoch also reaches the workers of a DataLoader.
        self._epoch: Any = multiprocessing.Value("q", 0, lock=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Schedule:
        return self  # copies of a data set follow the same epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, counted from 0. After the last epoch its probabilities stay."""
        if epoch < 0:
            raise ValueError(f"epochs are counted from 0, not {epoch}")
        self._epoch.value = epoch

    def probabilities(self) -> tuple[float, list[float]]:
        """Return p_tp and p_o of the present epoch."""
        epoch = min(self._epoch.value, self.epochs - 1)
        entry = (2 * epoch + 1) * len(P_TP) // (2 * self.epochs)
        return P_TP[entry], P_O[entry]

    def draw(self, rng: Any) -> list[tuple[str, Argument]]:
        """Draw the ops of an image: DEPTH candidates with probability p_tp, else none.

        rng: the module `random`, which DataLoader workers seed, or a `random.Random`.
        """
        p_tp, p_o = self.probabilities()
        if rng.random() >= p_tp:
            return []
        return [
            (op, -argument if op in SIGNED and rng.random() < 0.5 else argument)
            for op, argument in rng.choices(CANDIDATES, p_o, k=DEPTH)
        ]
