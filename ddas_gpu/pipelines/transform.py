"""The standard transform of a data set, as numbers: what happens to an image around the policy.

With labels: crop and flip on uint8, the policy, then normalise and Cutout. With boxes: resize and
flip on uint8, the policy, then normalise and pad.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddas_gpu.data.opening import Images
from ddas_gpu.data.sources import ImageArrays
from ddas_gpu.pipelines.pixels import channel_statistics

CROPS = ("pad", "resized")
LAYOUTS = ("NCHW", "NHWC")
DTYPES = ("float32", "float16")
IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)


@dataclass(frozen=True)
class Output:
    """What the model gets: normalised with `mean` and `std`, in levels of 0 … 255."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    layout: str = "NCHW"
    dtype: str = "float32"


@dataclass(frozen=True)
class Transform:
    """The standard transform of images with labels."""

    size: tuple[int, int]  # height and width of what comes out
    crop: str  # "pad": shift by up to `padding` into black; "resized": scale a random part
    padding: int
    flip: bool
    cutout: int  # side of the hole, 0 for none
    output: Output
    rotate90: bool = False  # rotate test images by 90°: the paper's sanity check


@dataclass(frozen=True)
class Square:
    """Resize every image to `size` × `size` pixels, whatever its shape."""

    size: int

    def new_size(self, height: int, width: int) -> tuple[int, int]:
        return self.size, self.size


@dataclass(frozen=True)
class KeepRatio:
    """Resize the shorter side to `short` pixels, but the longer one to at most `long`."""

    short: int
    long: int

    def new_size(self, height: int, width: int) -> tuple[int, int]:
        factor = min(self.short / min(height, width), self.long / max(height, width))
        return max(1, round(height * factor)), max(1, round(width * factor))


Resize = Square | KeepRatio


@dataclass(frozen=True)
class BoxTransform:
    """The standard transform of images with boxes."""

    resize: Resize
    flip: bool
    output: Output
    rotate90: bool = False


def make_transform(
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
    rotate90: bool = False,
) -> Transform:
    """Return the transform, with defaults for what is not given.

    Arrays are padded and keep their size, files are cropped to 224 pixels; arrays bring their own
    mean and deviation, files have ImageNet's.
    """
    pixels = images.images if isinstance(images, ImageArrays) else None
    one_size = pixels if isinstance(pixels, np.ndarray) else None
    crop = one_of("crop", crop or ("resized" if one_size is None else "pad"), CROPS)
    if one_size is not None:
        own = (one_size.shape[1], one_size.shape[2])
        if crop != "pad":
            raise ValueError("images in memory have one size already: crop='pad'")
        if size is not None and _pair(size) != own:
            raise ValueError(
                f"the images in memory have {own} pixels and are not scaled to {_pair(size)}"
            )
        size = own
    for name, value in (("padding", padding), ("cutout", cutout)):
        if not isinstance(value, (int, np.integer)) or value < 0:
            raise ValueError(f"{name} is a number of pixels, 0 or more, not {value!r}")
    if one_size is not None and (mean is None or std is None):
        own_mean, own_std = channel_statistics(one_size)
        mean, std = own_mean if mean is None else mean, own_std if std is None else std
    return Transform(
        size=_pair(size if size is not None else 224 if crop == "resized" else 32),
        crop=crop,
        padding=int(padding),
        flip=bool(flip),
        cutout=int(cutout),
        output=make_output(mean, std, layout, dtype),
        rotate90=rotate90,
    )


def make_box_transform(
    *,
    resize: int | tuple[int, int] | Resize = (800, 1333),
    flip: bool = True,
    mean: Any = None,
    std: Any = None,
    layout: str = "NCHW",
    dtype: str = "float32",
    rotate90: bool = False,
) -> BoxTransform:
    """Return the transform, or raise a ValueError that names the wrong argument."""
    output = make_output(mean, std, layout, dtype)
    return BoxTransform(open_resize(resize), bool(flip), output, rotate90)


def make_output(mean: Any, std: Any, layout: str, dtype: str) -> Output:
    return Output(
        mean=_channels("mean", IMAGENET_MEAN if mean is None else mean),
        std=_channels("std", IMAGENET_STD if std is None else std),
        layout=one_of("layout", layout, LAYOUTS),
        dtype=one_of("dtype", str(dtype).removeprefix("torch."), DTYPES),
    )


def open_resize(resize: int | tuple[int, int] | Resize) -> Resize:
    """Read a number as the side of a square, a pair as the shorter side and the longest."""
    if isinstance(resize, Resize):
        return resize
    sides = tuple(resize) if isinstance(resize, (tuple, list)) else (resize,)
    whole = all(isinstance(side, (int, np.integer)) and side > 0 for side in sides)
    if not whole or len(sides) not in (1, 2):
        raise ValueError(
            f"resize is the side of a square in pixels, or (shorter side, longest), not {resize!r}"
        )
    return Square(int(*sides)) if len(sides) == 1 else KeepRatio(*map(int, sides))


def one_of(name: str, value: str, accepted: tuple[str, ...]) -> str:
    """Return `value`, or raise a ValueError that lists what is accepted."""
    if value not in accepted:
        raise ValueError(f"{name} is one of {', '.join(accepted)}, not {value!r}")
    return value


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, (int, np.integer)) else tuple(size)
    if len(pair) != 2 or not all(isinstance(s, (int, np.integer)) and s > 0 for s in pair):
        raise ValueError(f"size is a number of pixels or (height, width), not {size!r}")
    return int(pair[0]), int(pair[1])


def _channels(name: str, values: Any) -> tuple[float, ...]:
    array = np.asarray(values, np.float64)
    if array.shape != (3,) or not np.isfinite(array).all() or (name == "std" and array.min() <= 0):
        kind = "a number above 0" if name == "std" else "a number"
        raise ValueError(f"{name} has {kind} for each of 3 channels, in levels, not {values!r}")
    return tuple(array.tolist())


def require_known(function: str, given: Iterable[str], *known: Callable[..., Any]) -> None:
    """Raise a TypeError that names the nearest keyword of the functions `known`."""
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {
        name
        for each in known
        for name, parameter in inspect.signature(each).parameters.items()
        if parameter.kind in plain
    } - {"self", "shard"}  # a loader finds its shard by itself, or from shard_id and num_shards
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.5)
            there = f"there are: {', '.join(sorted(names))}"
            hint = f"did you mean {near[0]!r}?" if near else there
            raise TypeError(f"{function} has no keyword {name!r}; {hint}")


def require_levels(mean: Any, std: Any) -> None:
    """Raise a ValueError if mean or std are those of images in [0, 1], as in torchvision.

    Means of 0 and deviations of 1, which leave the levels as they are, are accepted.
    """
    for name, values, in_fractions in (
        ("mean", mean, lambda array: array.max() <= 1 and array.max() > 0),
        ("std", std, lambda array: array.max() < 1 and array.min() > 0),
    ):
        if values is None:
            continue
        array = np.asarray(values, np.float64)
        if array.shape == (3,) and array.min() >= 0 and in_fractions(array):
            raise ValueError(
                f"{name} is given in levels of 0 … 255, but {values!r} looks like that of images "
                "in [0, 1]: multiply it by 255"
            )
