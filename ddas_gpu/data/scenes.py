"""Scenes: the digits of the package on backgrounds like photographs, with boxes. No download.

They are drawn once, by a seeded generator, and written in COCO's layout: the reader of COCO and all
that follows treat them as any other photographs. All arithmetic is on whole numbers, so that the
pixels are the same on every machine.

No handwritten digit of the training images is in the test images.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from ddas_gpu import streams
from ddas_gpu.data.coco import Coco, CocoReader
from ddas_gpu.data.digits import open_digits
from ddas_gpu.files import write_atomically
from ddas_gpu.streams import Stream

VERSION = 1  # of the pixels: raise it when they change
SIZE = 96  # pixels per side of an image
IMAGES = {"train2017": 3000, "val2017": 250}  # half as many are learned by heart
POOLS = {"train2017": slice(0, 1200), "val2017": slice(1200, None)}  # of the 1,797 digits, shuffled
DIGITS = (3, 5)  # fewest and most in an image
HEIGHTS = (22, 52)  # of a digit, in pixels
MOST_OVERLAP = 0.1  # IoU of two boxes
CONTRAST = (80, 170)  # levels of grey between a digit and what it lies on
FACTS = "scenes.json"
STALE_SECONDS = 3600  # after which a folder that was not finished belongs to a killed process
NOT_A_DIGIT = 96  # opacity below which a pixel shows the background alone


class ScenesReader:
    """The `Reader` of the scenes: they are written where they are missing."""

    layout = ""

    def search_images(self, root: Path | None, size: int) -> Coco:
        return CocoReader().search_images(_written(root), size)

    def training_images(
        self, root: Path | None, test_root: Path | None, size: int
    ) -> tuple[Coco, Coco]:
        folder = _written(root)
        if test_root is not None and not test_root.is_dir():
            raise ValueError(f"there is no folder {test_root} with test images")
        return CocoReader().training_images(folder, test_root, size)


@dataclass(frozen=True)
class Scene:
    """An image, and the box and digit of everything in it."""

    image: np.ndarray  # (H, W, 3) uint8
    boxes: np.ndarray  # (n, 4) int64, x0 y0 x1 y1: every pixel that a digit has changed
    labels: np.ndarray  # (n,) int64


# The folder.


def _written(root: Path | None) -> Path:
    """Return the folder of the scenes, written if need be; `root` may be any in COCO's layout."""
    if root is None:
        folder = _cache_folder() / f"scenes-{VERSION}"
        if folder.exists() and not _complete(folder):
            shutil.rmtree(folder)
    else:
        folder = root
        if (folder / FACTS).is_file() and not _complete(folder):
            raise ValueError(f"the scenes in {folder} are damaged: delete it, and it is made again")
    if not folder.is_dir() or not any(folder.iterdir()):
        write_scenes(folder)
    return folder


def write_scenes(folder: Path, seed: int = 0, images: dict[str, int] | None = None) -> None:
    """Write scenes in COCO's layout; `folder` is missing or empty until all of it is there.

    Several processes may do so at once: the first to finish wins.
    """
    images = IMAGES if images is None else images
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(folder)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        for split, count in images.items():
            _write_split(temporary, split, draw_scenes(seed, split, count))
        facts = {"version": VERSION, "seed": seed, "images": images, "bytes": _bytes_of(temporary)}
        write_atomically(temporary / FACTS, f"{json.dumps(facts)}\n".encode())
        try:
            os.rename(temporary, folder)
        except OSError:
            if not _complete(folder):
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_split(folder: Path, split: str, scenes: Iterator[Scene]) -> None:
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    (folder / split).mkdir(parents=True)
    (folder / "annotations").mkdir(exist_ok=True)
    for number, scene in enumerate(scenes, 1):
        name = f"{number:06}.png"
        Image.fromarray(scene.image).save(folder / split / name, compress_level=1)
        height, width = scene.image.shape[:2]
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        for (x0, y0, x1, y1), label in zip(scene.boxes.tolist(), scene.labels, strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": int(label) + 1,
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": (x1 - x0) * (y1 - y0),
                    "iscrowd": 0,
                }
            )
    categories = [{"id": digit + 1, "name": str(digit)} for digit in range(10)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))


def _complete(folder: Path) -> bool:
    """Return whether all that was written is still there, by the number of bytes."""
    try:
        return json.loads((folder / FACTS).read_text())["bytes"] == _bytes_of(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _bytes_of(folder: Path) -> int:
    files = (file for file in folder.glob("*/*") if file.is_file())
    return sum(file.stat().st_size for file in files)


def _remove_stale(folder: Path) -> None:
    for left in folder.parent.glob(f".{folder.name}.*.part"):
        if time.time() - left.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)


def _cache_folder() -> Path:
    from ddas_gpu.ops.backends import cache_folder

    return cache_folder()


# The pictures.


def draw_scenes(seed: int, split: str, images: int) -> Iterator[Scene]:
    """Draw the images of a split: each a function of the seed, the split and its number."""
    digits = open_digits(8)
    pictures = np.asarray(digits.images)[:, :, :, 0]
    pool = streams.generator(seed, Stream.SPLIT).permutation(len(digits))[POOLS[split]]
    for number in range(images):
        generator = streams.generator(seed, Stream.EXAMPLES, list(POOLS).index(split), number)
        chosen = pool[
            generator.integers(len(pool), size=int(generator.integers(DIGITS[0], DIGITS[1] + 1)))
        ]
        yield draw_scene(pictures[chosen], digits.labels[chosen], generator)


def draw_scene(
    digits: np.ndarray, labels: np.ndarray, generator: np.random.Generator, size: int = SIZE
) -> Scene:
    """Paste digits (n, 8, 8) onto a new background; one for which there is no room is left out."""
    image = draw_background(generator, size)
    boxes: list[tuple[int, int, int, int]] = []
    kept = []
    for digit, label in zip(digits, labels, strict=True):
        mask = _enlarged(digit, generator)
        box = _free_place(mask.shape, boxes, generator, size)
        if box is not None:
            _paste(image, mask, box, generator)
            boxes.append(box)
            kept.append(label)
    return Scene(
        _with_noise(image, generator),
        np.array(boxes, np.int64).reshape(-1, 4),
        np.array(kept, np.int64),
    )


def draw_background(generator: np.random.Generator, size: int = SIZE) -> np.ndarray:
    """Draw a gradient, soft shapes in front of it, and texture of all scales; int32 (H, W, 3)."""
    base = _colours(generator, int(generator.integers(2, 5)))
    picture = Image.fromarray(base).resize((size, size), Image.Resampling.BICUBIC)
    for _ in range(int(generator.integers(3, 9))):
        _draw_shape(picture, generator)
    image = np.asarray(picture).astype(np.int32)
    roughness = int(generator.integers(4, 40))
    for scale in (4, 8, 16, 32, 64):
        noise = generator.integers(0, 256, (scale, scale), dtype=np.uint8)
        texture = Image.fromarray(noise).resize((size, size), Image.Resampling.BICUBIC)
        # As in photographs, the finer the weaker.
        amplitude = roughness * 4 // (scale.bit_length() + 1)
        image += ((np.asarray(texture, np.int32) - 128) * amplitude // 128)[:, :, None]
    return image


def _colours(generator: np.random.Generator, side: int) -> np.ndarray:
    """Draw (side, side, 3) colours: grey ones are more frequent than in a cube of colours."""
    grey = generator.integers(30, 226, (side, side, 1))
    tint = generator.integers(-45, 46, (1, 1, 3)) + generator.integers(-15, 16, (side, side, 3))
    return np.clip(grey + tint, 0, 255).astype(np.uint8)


def _draw_shape(picture: Image.Image, generator: np.random.Generator) -> None:
    """Draw an ellipse, a polygon or a line, more or less out of focus and transparent."""
    size = picture.size[0]
    mask = Image.new("L", picture.size)
    draw = ImageDraw.Draw(mask)
    opacity = int(generator.integers(60, 230))
    x, y = generator.integers(-size // 4, size * 5 // 4, 2).tolist()
    kind = int(generator.integers(4))
    if kind == 0:
        width, height = generator.integers(4, size // 2, 2).tolist()
        draw.ellipse((x - width, y - height, x + width, y + height), fill=opacity)
    elif kind == 1:
        corners = generator.integers(-size // 2, size // 2, (int(generator.integers(3, 6)), 2))
        draw.polygon([(x + a, y + b) for a, b in corners.tolist()], fill=opacity)
    else:
        end = generator.integers(-size // 4, size * 5 // 4, 2).tolist()
        draw.line((x, y, *end), fill=opacity, width=int(generator.integers(1, 7)))
    softened = mask.filter(ImageFilter.BoxBlur(int(generator.integers(0, 4))))
    picture.paste(tuple(_colours(generator, 1)[0, 0].tolist()), mask=softened)


def _enlarged(digit: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the opacity of a digit, (h, w) uint8, at a random size, without empty margins."""
    low, high = HEIGHTS
    # Small ones more often, as objects in photographs are.
    height = low + int(generator.integers(high - low + 1)) * int(generator.integers(60, 101)) // 100
    width = height * int(generator.integers(80, 121)) // 100
    rows, columns = (np.flatnonzero(digit.max(axis) >= NOT_A_DIGIT) for axis in (1, 0))
    filled = digit[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    width = max(4, width * filled.shape[1] // 8)
    padded = Image.fromarray(np.pad(filled, 1))
    factor = (height + 2 * height // len(filled), width + 2 * width // filled.shape[1])
    large = padded.resize(factor[::-1], Image.Resampling.BICUBIC)
    sharp = np.clip((np.asarray(large, np.int32) - 112) * 3 + 128, 0, 255)
    sharp[sharp < NOT_A_DIGIT] = 0
    rows, columns = (np.flatnonzero(sharp.any(axis)) for axis in (1, 0))
    return sharp[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].astype(np.uint8)


def _free_place(
    shape: tuple[int, ...],
    taken: Sequence[tuple[int, int, int, int]],
    generator: np.random.Generator,
    size: int,
) -> tuple[int, int, int, int] | None:
    """Draw a box inside the image that overlaps with no other by much; None after 20 tries."""
    height, width = shape
    for _ in range(20):
        x = int(generator.integers(size - width + 1))
        y = int(generator.integers(size - height + 1))
        box = (x, y, x + width, y + height)
        if all(_overlap(box, other) <= MOST_OVERLAP for other in taken):
            return box
    return None


def _overlap(one: Sequence[int], other: Sequence[int]) -> float:
    """Return the intersection over union."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(0, width) * max(0, height)
    areas = ((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return shared / (sum(areas) - shared)


def _paste(
    image: np.ndarray,
    mask: np.ndarray,
    box: tuple[int, int, int, int],
    generator: np.random.Generator,
) -> None:
    """Blend a digit in, in a colour darker or lighter than what it covers."""
    x0, y0, x1, y1 = box
    place = image[y0:y1, x0:x1]
    below = int(place.sum()) // place.size
    contrast = int(generator.integers(*CONTRAST))
    lighter = bool(generator.integers(2)) if contrast <= below <= 255 - contrast else below < 128
    tint = generator.integers(-40, 41, 3)
    colour = below + (contrast if lighter else -contrast) + tint - int(tint.sum()) // 3
    alpha = mask.astype(np.int32)[:, :, None]
    place += (np.clip(colour, 0, 255).astype(np.int32) - place) * alpha // 255


def _with_noise(image: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Add the noise of a camera and return bytes."""
    strength = int(generator.integers(1, 9))
    noise = generator.integers(-strength, strength + 1, image.shape, dtype=np.int32)
    return np.clip(image + noise, 0, 255).astype(np.uint8)
