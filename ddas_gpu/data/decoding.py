"""Decoding image files with Pillow: uint8 HWC, RGB, upright, as DALI decodes them.

Both decoders turn photographs upright, drop transparency and scale 16 bits to 8. The tests hold
them together, and `scanning` compares them on the user's own files.
"""

from __future__ import annotations

import stat
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from ddas_gpu.data.sources import FOREIGN, FORMATS, Pixels

# What Pillow's decoders raise for damaged files, SyntaxError among them.
DAMAGED = (
    *(OSError, SyntaxError, ValueError, EOFError, TypeError, LookupError, OverflowError),
    *(MemoryError, struct.error, zlib.error, Image.DecompressionBombError),
)


def open_image(path: Path) -> Image.Image:
    """Open an image of one of FORMATS; raise one of DAMAGED for anything else."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # opening a named pipe would wait for a writer
        raise OSError("not a regular file")
    if found.st_size == 0:
        raise OSError("the file is empty")
    image = Image.open(path, formats=(*FORMATS, *FOREIGN))
    if image.format in FOREIGN:
        image.close()
        raise ValueError(f"a {image.format}, which DALI does not read: save it as PNG")
    return image


def to_rgb(image: Image.Image, file_format: str | None = None) -> Image.Image:
    """Return an image of any mode as RGB; 16 bits are scaled to 8, where Pillow would clip them.

    file_format: of the file it was read from, which an image after an operation has forgotten.
    """
    wide = image.mode == "I" and (file_format or image.format) in ("PNG", "PPM")  # 16 bits in 32
    if image.mode.startswith("I;16") or wide:
        levels = np.rint(np.asarray(image) / 257).astype(np.uint8)
        return Image.fromarray(levels).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError("it has 32 bits per channel: save it with 8 or 16")
    return image.convert("RGB")


def upright(image: Image.Image) -> Image.Image:
    """Return an opened image as RGB, as the camera was held."""
    return to_rgb(ImageOps.exif_transpose(image), image.format)


def words(error: Exception) -> str:
    """Return the reason without the path, which some of Pillow's messages repeat."""
    if isinstance(error, Image.UnidentifiedImageError):
        return "not an image"
    return str(error) or type(error).__name__


def decode(
    path: Path, annotated: tuple[int, int] | None = None, where: str = "folder"
) -> Image.Image:
    """Return an image as RGB, or raise a ValueError that names the file and `where` it belongs.

    annotated: (width, height) that its boxes refer to. An image that is stored in this size is not
        turned upright.
    """
    try:
        with open_image(path) as file:
            return to_rgb(file) if file.size == annotated else upright(file)
    except DAMAGED as error:
        raise ValueError(
            f"cannot read the image {path} ({words(error)}): replace it or take it out of the "
            f"{where}"
        ) from None


def read_image(path: Path, shortest: int | None = None) -> np.ndarray:
    """Return an image as uint8 (H, W, 3), or raise a ValueError that names the file.

    shortest: reduce a shorter side of more pixels to this many, to bound the memory.
    """
    image = decode(path)
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
