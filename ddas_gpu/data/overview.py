"""What a data set holds, in words: printed before a run begins, so that a wrong folder is seen."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ddas_gpu.data.coco import Coco
from ddas_gpu.data.decoding import DAMAGED, open_image, upright
from ddas_gpu.data.sources import ImageFiles
from ddas_gpu.errors import printable

LOOKED_AT = 64  # images that stand for all
MOST_NAMED = 10  # classes
SMALL = 64  # pixels per side, enough to tell grey images


class Looks(NamedTuple):
    """What a few images look like."""

    sizes: np.ndarray  # (n, 2) height and width
    grey: bool  # every pixel of all of them

    def words(self) -> str:
        """Return "32 × 32 pixels, grey", or the smallest and the largest."""
        order = np.lexsort((self.sizes.max(1), self.sizes.min(1)))
        ends = [" × ".join(map(str, self.sizes[place, ::-1])) for place in (order[0], order[-1])]
        sizes = ends[0] if ends[0] == ends[1] else f"from {ends[0]} to {ends[1]}"
        return f"{sizes} pixels, {'grey' if self.grey else 'colour'}"


def look_at(source: Any) -> Looks:
    """Look at a few images of a source, evenly spread; of files that cannot be read, at none."""
    chosen = np.unique(np.linspace(0, len(source) - 1, min(LOOKED_AT, len(source))).astype(int))
    if isinstance(source, (ImageFiles, Coco)):
        with ThreadPoolExecutor() as pool:
            looks = pool.map(_look_at_file, [source.files[place] for place in chosen])
            found = [look for look in looks if look is not None]
    else:
        images = [source.images[place] for place in chosen]
        found = [(image.shape[:2], is_grey(image)) for image in images]
    sizes = np.array([size for size, _ in found] or [(0, 0)])
    return Looks(sizes, bool(found) and all(grey for _, grey in found))


def _look_at_file(path: Path) -> tuple[tuple[int, int], bool] | None:
    try:
        with open_image(path) as image:
            width, height = image.size
            image.draft("RGB", (SMALL, SMALL))  # a JPEG is decoded at this size at once
            pixels = np.asarray(upright(image))
    except DAMAGED:
        return None
    if (pixels.shape[0] > pixels.shape[1]) != (height > width):  # it was on its side
        height, width = width, height
    return (height, width), is_grey(pixels)


def is_grey(image: np.ndarray) -> bool:
    """Return whether the channels of an image (…, 3) are equal."""
    return bool((image == image[..., :1]).all())


@dataclass(frozen=True)
class Found:
    """The data of a run."""

    name: str
    """Of the data set, with its folder."""
    images: int
    """In the whole data set."""
    classes: int
    """In the whole data set."""
    sets: dict[str, Any]
    """{"to train on": source, …}"""

    @cached_property
    def looks(self) -> Looks:
        return look_at(next(iter(self.sets.values())))

    @property
    def class_names(self) -> tuple[str, ...]:
        return next(iter(self.sets.values())).class_names

    def lines(self) -> list[str]:
        """Return what to print: the data set, its parts, and what the images look like."""
        noun = "class" if self.classes == 1 else "classes"
        classes = named(self.class_names)
        if len(self.class_names) < self.classes:
            classes = f"of which {len(self.class_names)} were drawn: {classes}"
        parts = [f"{len(part):,} {purpose}{per_class(part)}" for purpose, part in self.sets.items()]
        return [
            printable(f"{self.name}: {self.images:,} images in {self.classes:,} {noun}, {classes}"),
            f"split: {', '.join(parts)}",
            f"images: {self.looks.words()}",
        ]


def named(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def per_class(source: Any) -> str:
    """Return " (75 of each class)" or " (61 to 90 of each class)"; nothing for boxes."""
    labels = getattr(source, "labels", None)
    if labels is None:
        return ""
    counts = np.bincount(labels, minlength=len(source.class_names))
    least, most = counts.min(), counts.max()
    return f" ({least}{'' if least == most else f' to {most}'} of each class)"
