"""What the weights w_l say about the passes: how each loss is scaled, which product is free.

Σ_l w_l g_l is computed anyway. Its product with a direction is Σ_l w_l (g_l · direction), so with
all but one of the g_l · direction the last follows. That of the largest weight: dividing by it
never multiplies the rounding errors of the others by more than L.
"""

from collections.abc import Sequence

import torch

# Below this part of the largest weight a loss is not scaled by its weight but by the largest one:
# a gradient times 1e-30 would lose its bits.
_SMALL = 2.0**-10


class Weighting:
    """The weights (L+1,) and what follows from them; plain numbers, known before any pass."""

    def __init__(self, weights: Sequence[float]):
        self.weights = [float(weight) for weight in weights]
        sizes = [abs(weight) for weight in self.weights]
        largest = max(sizes)
        self.solved: int | None = sizes.index(largest) if largest > 0 else None
        self.kept = [version for version in range(len(sizes)) if version != self.solved]
        self.factors = [
            weight if largest > 0 and size >= _SMALL * largest else largest or 1.0
            for weight, size in zip(self.weights, sizes, strict=True)
        ]

    @property
    def plain(self) -> bool:
        """Whether every loss is scaled by its weight."""
        return self.factors == self.weights

    def correction(self, version: int) -> float:
        """What turns a gradient of the loss times `factors[version]` into w_l g_l."""
        return self.weights[version] / self.factors[version]

    def solve(self, total: torch.Tensor, products: dict[int, torch.Tensor]) -> torch.Tensor:
        """The one missing g_l · v, from (Σ w_l g_l) · v and all the others."""
        rest = sum(self.weights[version] * product for version, product in products.items())
        return (total - rest) / self.weights[self.solved]
