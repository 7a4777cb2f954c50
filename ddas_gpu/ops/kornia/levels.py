"""Pixels as grey levels 0..255, and how Pillow's intermediate rounding is carried into floats.

Pillow works on bytes and rounds on the way: Color rounds the grey image, Contrast its mean,
Sharpness the smoothed image, and a factor of 5 makes 2.5 levels out of half a level. To stay within
one level of Pillow we must round there, too; to be differentiable we must not. So a rounded
quantity is computed as Pillow does from the nearest bytes, where it is constant under small
changes, and the linear response to the distance from those bytes is added. On images that came
from bytes the distance is 0 and the value Pillow's; and between its jumps, half-way between two
bytes, the function has exactly the derivative of the formula without rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

WHITE = 255


@dataclass(frozen=True)
class Levels:
    """A batch (B, 3, H, W) in grey levels."""

    values: Tensor
    nearest: Tensor  # the nearest bytes, as floats without a graph; `values` itself if they are

    @classmethod
    def of_floats(cls, images: Tensor) -> Levels:
        """From [0, 1]. k / 255 * 255 misses k by some 1e-5 in float32: compare `nearest`."""
        values = images * WHITE
        return cls(values, values.detach().round())

    @classmethod
    def of_bytes(cls, images: Tensor) -> Levels:
        # Channels apart: reductions and gathers with channels last take many times as long.
        values = images.to(torch.float32, memory_format=torch.contiguous_format)
        return cls(values, values)

    @property
    def are_bytes(self) -> bool:
        return self.values is self.nearest

    def rounded(
        self, rounded: Callable[[Tensor], Tensor], linear: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """`rounded(levels)` on the bytes, continued by the map `linear` that it rounds."""
        on_bytes = rounded(self.nearest)
        if self.are_bytes:
            return on_bytes
        return on_bytes + linear(self.values - self.nearest)

    def look_up(self, tables: Tensor) -> Tensor:
        """The entries of `tables`, (B, 3, 256), at the nearest bytes."""
        places = self.nearest.to(torch.int64).clamp(0, WHITE).flatten(2)
        return tables.to(self.values.dtype).gather(2, places).view(self.nearest.shape)

    def straight_through(self, step: Tensor) -> Tensor:
        """The values of `step`, a function of `nearest`, with the gradient of the identity."""
        return self.values + (step - self.values).detach()


def round_half_up(levels: Tensor) -> Tensor:
    return (levels + 0.5).floor()


def blend(degenerate: Tensor, levels: Tensor, factor: Tensor) -> Tensor:
    """`Image.blend` before it clips and truncates: the same order of the same float operations."""
    return degenerate + factor * (levels - degenerate)


def to_floats(levels: Tensor, dtype: torch.dtype) -> Tensor:
    return (levels / WHITE).clamp(0, 1).to(dtype)


def to_bytes(levels: Tensor, *, rounds: bool) -> Tensor:
    levels = round_half_up(levels) if rounds else levels
    return levels.clamp(0, WHITE).to(torch.uint8)  # the cast truncates
