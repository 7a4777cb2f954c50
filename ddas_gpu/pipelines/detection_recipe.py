"""What happens to an image with boxes before and after the policy, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ddas_gpu.detection.transforms import KeepRatio, Resize, Square
from ddas_gpu.pipelines.images import IMAGENET_DEVIATION, IMAGENET_MEAN
from ddas_gpu.pipelines.recipe import DTYPES, LAYOUTS, channels, one_of


@dataclass(frozen=True)
class DetectionRecipe:
    """The standard transform: resize and flip on uint8, then normalise and pad with 0."""

    resize: Resize
    flip: bool
    mean: tuple[float, ...]  # of the channels, in levels of 0 … 255
    deviation: tuple[float, ...]
    layout: str
    dtype: str


def make_detection_recipe(
    *,
    resize: int | tuple[int, int] | Resize = (800, 1333),
    flip: bool = True,
    mean: Any = None,
    std: Any = None,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> DetectionRecipe:
    """The recipe, or a ValueError that names the setting that is wrong."""
    return DetectionRecipe(
        resize=open_resize(resize),
        flip=bool(flip),
        mean=channels("mean", IMAGENET_MEAN if mean is None else mean),
        deviation=channels("std", IMAGENET_DEVIATION if std is None else std),
        layout=one_of("layout", layout, LAYOUTS),
        dtype=one_of("dtype", str(dtype).removeprefix("torch."), DTYPES),
    )


def open_resize(resize: int | tuple[int, int] | Resize) -> Resize:
    """A number is the side of a square, a pair the shorter side and the longest there may be."""
    if isinstance(resize, Resize):
        return resize
    sides = tuple(resize) if isinstance(resize, (tuple, list)) else (resize,)
    whole = all(isinstance(side, (int, np.integer)) and side > 0 for side in sides)
    if not whole or len(sides) not in (1, 2):
        raise ValueError(
            f"resize is the side of a square in pixels, or (shorter side, longest), not {resize!r}"
        )
    return Square(int(*sides)) if len(sides) == 1 else KeepRatio(*map(int, sides))
