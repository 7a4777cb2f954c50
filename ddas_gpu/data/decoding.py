"""Decoding image files with Pillow: uint8 HWC, RGB, upright."""

from __future__ import annotations

import stat
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from ddas_gpu.data.sources import Pixels

# The image files that are looked for in folders.
SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".tif", ".tiff", ".webp"))

# Pillow would also open others, whatever their file is called: an EPS starts Ghostscript.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")

# What Pillow's decoders raise for damaged files, SyntaxError among them.
DAMAGED = (
    *(OSError, SyntaxError, ValueError, EOFError, TypeError, LookupError, OverflowError),
    *(MemoryError, struct.error, zlib.error, Image.DecompressionBombError),
)


def open_image(path: Path) -> Image.Image:
    """Open an image of a known format; raise one of DAMAGED for anything else."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # opening a named pipe would wait for a writer
        raise OSError("not a regular file")
    if found.st_size == 0:
        raise OSError("the file is empty")
    return Image.open(path, formats=FORMATS)


def words(error: Exception) -> str:
    """Return the reason without the path, which some of Pillow's messages repeat."""
    if isinstance(error, Image.UnidentifiedImageError):
        return "not an image"
    return str(error) or type(error).__name__


def read_image(path: Path, shortest: int | None = None) -> np.ndarray:
    """Return an image as uint8 (H, W, 3), or raise a ValueError that names the file.

    shortest: reduce a shorter side of more pixels to this many, to bound the memory.
    """
    try:
        with open_image(path) as file:
            image = ImageOps.exif_transpose(file).convert("RGB")
    except DAMAGED as error:
        raise ValueError(
            f"cannot read the image {path} ({words(error)}): replace it or take it out of the "
            "folder"
        ) from None
    if shortest is not None and min(image.size) > shortest:
        factor = shortest / min(image.size)
        width, height = (max(shortest, round(side * factor)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    return np.asarray(image)


def read_images(files: Sequence[Path], shortest: int | None = None) -> Pixels:
    """Return images decoded in threads: one array where all have the same size, else a list."""
    with ThreadPoolExecutor() as pool:
        images = list(pool.map(lambda file: read_image(file, shortest), files))
    return np.stack(images) if len({image.shape for image in images}) == 1 else images


def resized(
    image: np.ndarray,
    size: tuple[int, int],
    box: tuple[float, float, float, float] | None = None,
) -> np.ndarray:
    """Return an image, or the part `box` (left, top, right, bottom) of it, at (height, width)."""
    if box is None and image.shape[:2] == size:
        return image
    picture = Image.fromarray(image)
    return np.asarray(picture.resize(size[::-1], Image.Resampling.BILINEAR, box=box))


def to_size(images: Pixels, size: int) -> np.ndarray:
    """Return all images as one array of `size` × `size` pixels."""
    if isinstance(images, np.ndarray) and images.shape[1:3] == (size, size):
        return images
    return np.stack([resized(image, (size, size)) for image in images])
