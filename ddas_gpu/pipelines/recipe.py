"""What happens to an image before and after the policy, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ddas_gpu.pipelines.images import (
    IMAGENET_DEVIATION,
    IMAGENET_MEAN,
    ImageArrays,
    Images,
)

CROPS = ("pad", "resized")
LAYOUTS = ("NCHW", "NHWC")
DTYPES = ("float32", "float16")
RESIZED_FROM = 256 / 224  # evaluation sees the middle 224 of 256


@dataclass(frozen=True)
class Recipe:
    """The standard transform: crop and flip on uint8, then normalise and Cutout."""

    size: tuple[int, int]  # height and width of what comes out
    crop: str  # "pad": shift by up to `padding` into black; "resized": scale a random part
    padding: int
    flip: bool
    cutout: int  # side of the hole, 0 for none
    mean: tuple[float, ...]  # of the channels, in levels of 0 … 255
    deviation: tuple[float, ...]
    layout: str
    dtype: str


def make_recipe(
    images: Images,
    *,
    size: int | tuple[int, int] | None = None,
    crop: str | None = None,
    padding: int = 4,
    flip: bool = True,
    cutout: int = 0,
    mean: Any = None,
    std: Any = None,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Recipe:
    """Fill in what was not asked for: arrays are padded and keep their size, files are cropped
    to 224 pixels; arrays bring their own mean and deviation, files have ImageNet's.
    """
    in_memory = isinstance(images, ImageArrays)
    crop = one_of("crop", crop or ("pad" if in_memory else "resized"), CROPS)
    if in_memory:
        if crop != "pad":
            raise ValueError("images in memory have one size already: crop='pad'")
        own = images.images.shape[1:3]
        size = own if size is None else _pair(size)
        if size != own:
            raise ValueError(f"the images in memory have {own} pixels and are not scaled to {size}")
    for name, value in (("padding", padding), ("cutout", cutout)):
        if not isinstance(value, (int, np.integer)) or value < 0:
            raise ValueError(f"{name} is a number of pixels, 0 or more, not {value!r}")
    if mean is None or std is None:
        own_mean, own_std = (
            _statistics(images) if in_memory else (IMAGENET_MEAN, IMAGENET_DEVIATION)
        )
        mean, std = own_mean if mean is None else mean, own_std if std is None else std
    return Recipe(
        size=_pair(size if size is not None else 224 if crop == "resized" else 32),
        crop=crop,
        padding=int(padding),
        flip=bool(flip),
        cutout=int(cutout),
        mean=channels("mean", mean),
        deviation=channels("std", std),
        layout=one_of("layout", layout, LAYOUTS),
        dtype=one_of("dtype", str(dtype).removeprefix("torch."), DTYPES),
    )


def one_of(name: str, value: str, accepted: tuple[str, ...]) -> str:
    if value not in accepted:
        raise ValueError(f"{name} is one of {', '.join(accepted)}, not {value!r}")
    return value


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, (int, np.integer)) else tuple(size)
    if len(pair) != 2 or not all(isinstance(s, (int, np.integer)) and s > 0 for s in pair):
        raise ValueError(f"size is a number of pixels or (height, width), not {size!r}")
    return int(pair[0]), int(pair[1])


def channels(name: str, values: Any) -> tuple[float, ...]:
    array = np.asarray(values, np.float64)
    if array.shape != (3,) or not np.isfinite(array).all() or (name == "std" and array.min() <= 0):
        raise ValueError(f"{name} has a number for each of 3 channels, in levels, not {values!r}")
    return tuple(array.tolist())


def _statistics(images: ImageArrays) -> tuple[np.ndarray, np.ndarray]:
    from ddas_gpu.data import Normalise

    parts = np.array_split(images.images, -(-len(images) // 1024))  # which bounds its memory
    normalise = Normalise(parts)
    return normalise.mean.numpy(), normalise.deviation.numpy()
