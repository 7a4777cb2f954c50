"""What happens to an image with boxes before and after the policy, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ddas_gpu.detection.transforms import Resize, make_resize
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
    size: int | tuple[int, int] = 800,
    resize: str = "keep-ratio",
    flip: bool = True,
    mean: Any = None,
    std: Any = None,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> DetectionRecipe:
    """The recipe, or a ValueError that names the setting that is wrong."""
    return DetectionRecipe(
        resize=make_resize(resize, size),
        flip=bool(flip),
        mean=channels("mean", IMAGENET_MEAN if mean is None else mean),
        deviation=channels("std", IMAGENET_DEVIATION if std is None else std),
        layout=one_of("layout", layout, LAYOUTS),
        dtype=one_of("dtype", str(dtype).removeprefix("torch."), DTYPES),
    )
