"""Products of gradients: which follow from the others, and how two tensors are multiplied.

Σ_l w_l g_l is computed anyway. Its product with a direction is Σ_l w_l (g_l · direction), so with
all but one of the g_l · direction the last follows. That of the largest weight: dividing by it
never multiplies the rounding errors of the others by more than L.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

# Below this part of the largest weight a loss is not scaled by its weight but by the largest one:
# a gradient times 1e-30 would lose its bits.
_SMALL = 2.0**-10
_LOW_PRECISION = (torch.float16, torch.bfloat16)


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
        assert self.solved is not None
        rest = sum(self.weights[version] * product for version, product in products.items())
        return (total - rest) / self.weights[self.solved]


def inner(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Σ a·b, a tensor of shape ()."""
    a, b = widened(a), widened(b)
    if a.dtype != b.dtype:
        common = torch.promote_types(a.dtype, b.dtype)
        a, b = a.to(common), b.to(common)
    flat_a, flat_b = _in_memory_order(a), _in_memory_order(b)
    if flat_a is None or flat_b is None or flat_a[0] != flat_b[0]:
        return (a * b).sum()
    return torch.dot(flat_a[1], flat_b[1])


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, in float32 if it has fewer bits."""
    return tensor.float() if tensor.dtype in _LOW_PRECISION else tensor


def _in_memory_order(tensor: torch.Tensor) -> tuple[str, torch.Tensor] | None:
    """The layout and a flat view of a dense tensor; flattening channels-last would copy it."""
    if tensor.is_contiguous():
        return "contiguous", tensor.view(-1)
    if tensor.dim() in (4, 5):
        channels_last = tensor.movedim(1, -1)
        if channels_last.is_contiguous():
            return "channels last", channels_last.view(-1)
    return None
