"""Ops that read a pixel's neighbours.

As in Pillow, a filter leaves the border unchanged where its window does not fit. Both windows are
sums of boxes, which are separable: cheaper than a convolution, and exact on bytes in float32.
"""

from __future__ import annotations

from torch import Tensor

from ddas_gpu.ops.kornia.entries import EXACT, Call, changes
from ddas_gpu.ops.kornia.levels import Levels, blend, round_half_up


@changes(rounds=True)
def Blur(levels: Levels, call: Call) -> Tensor:
    """a border of 2 pixels passes unchanged"""
    return blur(levels.values)


@changes(rounds=True)
def Smooth(levels: Levels, call: Call) -> Tensor:
    """a border of 1 pixel passes unchanged"""
    return smooth(levels.values)


@changes(argument=EXACT)
def Sharpness(levels: Levels, call: Call) -> Tensor:
    """through the smoothing, too; 0 where clipped"""
    smoothed = levels.rounded(lambda pixels: round_half_up(smooth(pixels)), smooth)
    return blend(smoothed, levels.values, call.argument)


def blur(levels: Tensor) -> Tensor:
    """`ImageFilter.BLUR`: the 16 pixels on the rim of a 5 x 5 window, equally."""
    if min(levels.shape[2:]) < 5:
        return levels
    rim = box_sum(levels, 5) - box_sum(levels[:, :, 1:-1, 1:-1], 3)
    return with_border(rim / 16, levels)


def smooth(levels: Tensor) -> Tensor:
    """`ImageFilter.SMOOTH`: a 3 x 3 window, the centre five times."""
    if min(levels.shape[2:]) < 3:
        return levels
    return with_border((box_sum(levels, 3) + 4 * levels[:, :, 1:-1, 1:-1]) / 13, levels)


def box_sum(levels: Tensor, side: int) -> Tensor:
    """(B, C, H, W) -> (B, C, H - side + 1, W - side + 1)"""
    for dim in (3, 2):
        size = levels.shape[dim] - side + 1
        total = levels.narrow(dim, 0, size)
        for start in range(1, side):
            total = total + levels.narrow(dim, start, size)
        levels = total
    return levels


def with_border(interior: Tensor, levels: Tensor) -> Tensor:
    """Return `levels` with its interior replaced."""
    rim = (levels.shape[3] - interior.shape[3]) // 2
    out = levels.clone()
    out[:, :, rim:-rim, rim:-rim] = interior
    return out
