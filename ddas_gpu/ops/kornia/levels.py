"""Pixels as grey levels 0..255, with Pillow's intermediate rounding in differentiable form.

Pillow rounds intermediate results: Color rounds the grey image, Contrast its mean, Sharpness the
smoothed image; a factor of 5 amplifies half a level to 2.5. Staying within one level of Pillow
requires the same rounding, a gradient requires none. So a rounded quantity is computed from the
nearest bytes, where it is locally constant, and the linear response to the distance from those
bytes is added. On images that came from bytes the distance is 0 and the value is Pillow's. The
function jumps half-way between two bytes; everywhere else its derivative is that of the formula
without rounding.
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
        # NCHW: reductions and gathers are many times slower with channels last.
        values = images.to(torch.float32, memory_format=torch.contiguous_format)
        return cls(values, values)

    @property
    def are_bytes(self) -> bool:
        return self.values is self.nearest

    def rounded(
        self, rounded: Callable[[Tensor], Tensor], linear: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Return `rounded` of the nearest bytes plus `linear` of the distance from them."""
        on_bytes = rounded(self.nearest)
        if self.are_bytes:
            return on_bytes
        return on_bytes + linear(self.values - self.nearest)

    def look_up(self, tables: Tensor) -> Tensor:
        """Return the entries of `tables`, (B, 3, 256), at the nearest bytes."""
        places = self.nearest.to(torch.int64).clamp(0, WHITE).flatten(2)
        return tables.to(self.values.dtype).gather(2, places).view(self.nearest.shape)

    def straight_through(self, step: Tensor) -> Tensor:
        """Return `step`, a function of `nearest`, with the gradient of the identity."""
        return self.values + (step - self.values).detach()


def round_half_up(levels: Tensor) -> Tensor:
    return (levels + 0.5).floor()


def blend(degenerate: Tensor, levels: Tensor, factor: Tensor) -> Tensor:
    """Return `Image.blend` before it clips and truncates, in the same order of float operations."""
    return degenerate + factor * (levels - degenerate)


def to_floats(levels: Tensor, dtype: torch.dtype) -> Tensor:
    return (levels / WHITE).clamp(0, 1).to(dtype)


def to_bytes(levels: Tensor, *, rounds: bool) -> Tensor:
    levels = round_half_up(levels) if rounds else levels
    return levels.clamp(0, WHITE).to(torch.uint8)  # the cast truncates
