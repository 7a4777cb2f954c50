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
    size = image.shape[:2]
    new = resize.new_size(*size)
    return resized_image(image, new), resized_boxes(boxes, size, new)


def resized_image(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """(H, W, 3) in another height and width."""
    if image.shape[:2] == size:
        return image
    return np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR))


def resized_boxes(boxes: np.ndarray, size: tuple[int, int], new: tuple[int, int]) -> np.ndarray:
    """Boxes (n, 4) of an image of this height and width, after it got a new one."""
    y, x = new[0] / size[0], new[1] / size[1]
    return boxes * [x, y, x, y]


def flipped(image: np.ndarray, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mirrored left to right."""
    return image[:, ::-1], flipped_boxes(boxes, image.shape[1])


def flipped_boxes(boxes: np.ndarray, width: int) -> np.ndarray:
    """Boxes (n, 4) of an image of this width, after it was mirrored."""
    x0, y0, x1, y1 = boxes.T
    return np.stack([width - x1, y0, width - x0, y1], axis=1)


def turned(image: np.ndarray, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By 90° against the clock, as Pillow's ROTATE_90: for the sanity check."""
    width = image.shape[1]
    x0, y0, x1, y1 = boxes.T
    return np.rot90(image), np.stack([y0, width - x1, y1, width - x0], axis=1)
