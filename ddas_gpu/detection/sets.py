"""Images with boxes, handed out in batches under the detector's standard transform."""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ddas_gpu.data.clean import ALL
from ddas_gpu.data.coco import Annotated, read_images
from ddas_gpu.detection.transforms import Resize, flipped, resized, turned


class Examples(NamedTuple):
    """A batch: images of any sizes, each with any number of boxes."""

    images: list[np.ndarray]  # uint8 (H, W, 3)
    boxes: list[np.ndarray]  # (n, 4) float64, x0 y0 x1 y1 in pixels
    labels: list[np.ndarray]  # (n,) int64


@dataclass(frozen=True)
class DetectionSet:
    """Annotated images, read from disk when they are asked for: COCO does not fit in memory."""

    annotated: list[Annotated]
    class_names: tuple[str, ...]
    resize: Resize
    flip: bool = False  # mirror half of the images
    turn: bool = False  # by 90°: the validation images of the sanity check

    def __len__(self) -> int:
        return len(self.annotated)

    @property
    def members(self) -> tuple[str, ...]:
        """The files' names, for the record."""
        return tuple(annotated.file.name for annotated in self.annotated)

    def batch(
        self, indices: np.ndarray, generator: np.random.Generator, rows: slice = ALL
    ) -> Examples:
        """The images at `indices`, or `rows` of them, resized and flipped, with their boxes."""
        mirrored = generator.random(len(indices))[rows] < (0.5 if self.flip else 0.0)
        chosen = [self.annotated[index] for index in indices[rows]]
        examples = Examples([], [], [])
        for image, annotated, mirror in zip(read_images(chosen), chosen, mirrored, strict=True):
            boxes, labels = annotated.objects()
            image, boxes = resized(image, boxes, self.resize)
            if mirror:
                image, boxes = flipped(image, boxes)
            if self.turn:
                image, boxes = turned(image, boxes)
            examples.images.append(np.array(image))  # Pillow's are read-only
            examples.boxes.append(boxes)
            examples.labels.append(labels)
        return examples

    def turned(self) -> DetectionSet:
        """Every image rotated by 90°: the sanity check."""
        return dataclasses.replace(self, turn=True)

    def fingerprint(self) -> int:
        """A number that tells this data from other data."""
        checksum = 0
        for image in self.annotated:
            facts = f"{image.file.name} {image.width} {image.height} {image.file.stat().st_size}"
            checksum = zlib.crc32(facts.encode(), checksum)
            for array in image.objects():
                checksum = zlib.crc32(np.ascontiguousarray(array), checksum)
        return checksum
