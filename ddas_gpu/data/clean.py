"""The standard transform of a data set up to the policy: crop and flip, on uint8 images.

Each class is called with (images, generator) and returns (B, H, W, 3); all randomness comes from
the generator, once per image, so that every version of a batch shares the same crop and flip.
With `rows` only these of the images are made, each as it is when all of them are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from ddas_gpu.data.sources import Images

ALL = slice(None)


@dataclass(frozen=True)
class PadCropFlip:
    """Shift by up to `padding` pixels into black, and mirror half of the images if `flip`."""

    padding: int
    flip: bool

    def __call__(
        self, images: np.ndarray, generator: np.random.Generator, rows: slice = ALL
    ) -> np.ndarray:
        count, height, width = images.shape[:3]
        shifts = generator.integers(0, 2 * self.padding + 1, size=(2, count, 1))[:, rows]
        mirrored = generator.random((count, 1))[rows] < (0.5 if self.flip else 0.0)
        pad = (self.padding, self.padding)
        padded = np.pad(images[rows], ((0, 0), pad, pad, (0, 0)))
        down = np.arange(height) + shifts[0]
        across = np.arange(width)
        across = np.where(mirrored, across[::-1], across) + shifts[1]
        return padded[np.arange(len(padded))[:, None, None], down[:, :, None], across[:, None, :]]


@dataclass(frozen=True)
class ResizedCropFlip:
    """A random part of 8 to 100 % of the area, scaled to `size`, as in ImageNet training."""

    size: int
    flip: bool

    def __call__(
        self, images: Images, generator: np.random.Generator, rows: slice = ALL
    ) -> np.ndarray:
        # How often an image draws depends on its shape, so all of them must, in turn.
        drawn = [(random_box(image.shape[:2], generator), generator.random()) for image in images]
        crops = []
        for image, (box, number) in zip(images[rows], drawn[rows], strict=True):
            crop = _resize(image, box, self.size)
            mirrored = number < (0.5 if self.flip else 0.0)
            crops.append(crop[:, ::-1] if mirrored else crop)
        return np.stack(crops)


@dataclass(frozen=True)
class CentreCrop:
    """The middle 224/256 of the shorter side, scaled to `size`, as in ImageNet validation."""

    size: int

    def __call__(
        self, images: Images, generator: np.random.Generator, rows: slice = ALL
    ) -> np.ndarray:
        return np.stack(
            [_resize(image, _centre_box(image.shape[:2]), self.size) for image in images[rows]]
        )


@dataclass(frozen=True)
class AsTheyAre:
    """Small images of one size are validated whole."""

    def __call__(
        self, images: np.ndarray, generator: np.random.Generator, rows: slice = ALL
    ) -> np.ndarray:
        return images[rows]


Box = tuple[float, float, float, float]  # left, top, right, bottom


def random_box(shape: tuple[int, int], generator: np.random.Generator) -> Box:
    """A part of 8 to 100 % of the area, 3:4 to 4:3; the largest centred one after ten misses."""
    height, width = shape
    for _ in range(10):
        area = height * width * generator.uniform(0.08, 1.0)
        ratio = np.exp(generator.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left = int(generator.integers(0, width - w + 1))
            top = int(generator.integers(0, height - h + 1))
            return left, top, left + w, top + h
    w, h = min(width, height * 4 / 3), min(height, width * 4 / 3)
    return (width - w) / 2, (height - h) / 2, (width + w) / 2, (height + h) / 2


def _centre_box(shape: tuple[int, int]) -> Box:
    height, width = shape
    side = min(height, width) * 224 / 256
    return (width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2


def _resize(image: np.ndarray, box: Box, size: int) -> np.ndarray:
    resized = Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.asarray(resized)
