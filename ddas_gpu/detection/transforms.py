"""The standard transform of a detector's images before the policy: resize and flip, with boxes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class Square:
    """Every image as `size` × `size` pixels, whatever its shape was."""

    size: int

    def new_size(self, height: int, width: int) -> tuple[int, int]:
        return self.size, self.size


@dataclass(frozen=True)
class KeepRatio:
    """The shorter side `short` pixels, but the longer one at most `long`: 800 and 1333 on COCO."""

    short: int
    long: int

    def new_size(self, height: int, width: int) -> tuple[int, int]:
        factor = min(self.short / min(height, width), self.long / max(height, width))
        return max(1, round(height * factor)), max(1, round(width * factor))


Resize = Square | KeepRatio


def resized(image: np.ndarray, boxes: np.ndarray, resize: Resize) -> tuple[np.ndarray, np.ndarray]:
    """The image (H, W, 3) in its new size, and its boxes (n, 4) with it."""
    height, width = image.shape[:2]
    new_height, new_width = resize.new_size(height, width)
    if (new_height, new_width) != (height, width):
        shape = (new_width, new_height)
        image = np.asarray(Image.fromarray(image).resize(shape, Image.Resampling.BILINEAR))
    x, y = new_width / width, new_height / height
    return image, boxes * [x, y, x, y]


def flipped(image: np.ndarray, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mirrored left to right."""
    width = image.shape[1]
    x0, y0, x1, y1 = boxes.T
    return image[:, ::-1], np.stack([width - x1, y0, width - x0, y1], axis=1)


def turned(image: np.ndarray, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By 90° against the clock, as Pillow's ROTATE_90: for the sanity check."""
    width = image.shape[1]
    x0, y0, x1, y1 = boxes.T
    return np.rot90(image), np.stack([y0, width - x1, y1, width - x0], axis=1)
