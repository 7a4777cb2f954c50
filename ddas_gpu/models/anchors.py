"""RetinaNet's anchors: nine at every position of five feature maps."""

from __future__ import annotations

import functools
import math

import torch

STRIDES = (8, 16, 32, 64, 128)  # pixels between the positions of P3 … P7
RATIOS = (0.5, 1.0, 2.0)  # height to width
OCTAVES = (2 ** (0 / 3), 2 ** (1 / 3), 2 ** (2 / 3))
PER_PLACE = len(RATIOS) * len(OCTAVES)


def level_shapes(height: int, width: int) -> list[tuple[int, int]]:
    """Return (rows, columns) of P3 … P7 for images of this size."""
    return [(math.ceil(height / stride), math.ceil(width / stride)) for stride in STRIDES]


@functools.lru_cache(maxsize=16)
def anchors_for(height: int, width: int, scale: float = 4.0) -> torch.Tensor:
    """Return (A, 4) float32 corners x0 y0 x1 y1, in the order of the network's predictions.

    The smallest anchor of a level has a side of `scale` strides: 4 in the paper, for images of
    about 800 pixels. For images a few times smaller, 1 or 2 fits the size of their objects.
    """
    levels = []
    for stride, (rows, columns) in zip(STRIDES, level_shapes(height, width), strict=True):
        sides = torch.tensor([scale * stride * octave for octave in OCTAVES], dtype=torch.float64)
        roots = torch.tensor(RATIOS, dtype=torch.float64).sqrt()
        widths = (sides[:, None] / roots).flatten()
        heights = (sides[:, None] * roots).flatten()
        x = (torch.arange(columns, dtype=torch.float64) + 0.5) * stride
        y = (torch.arange(rows, dtype=torch.float64) + 0.5) * stride
        # (rows, columns, anchors)
        x, y = x[None, :, None], y[:, None, None]
        corners = (x - widths / 2, y - heights / 2, x + widths / 2, y + heights / 2)
        shape = (rows, columns, PER_PLACE)
        levels.append(torch.stack([c.expand(shape) for c in corners], -1).reshape(-1, 4))
    return torch.cat(levels).float()
