"""Generated images that look enough like photographs: smooth areas, texture, edges."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

QUALITY = 90  # of JPEGs, with the usual 4:2:0 subsampling of colours
DIFFERENT = 16  # photographs among the files, because making one takes longer than decoding it


@cache
def photograph(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Return a uint8 (height, width, 3) image; read-only, because it is shared."""
    rng = np.random.default_rng((seed, height, width))
    total = np.zeros((height, width, 3), np.float32)
    for cells, strength in ((3, 120), (9, 60), (40, 25)):
        small = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        smooth = np.asarray(small.resize((width, height), Image.Resampling.BICUBIC), np.float32)
        total += (smooth / 127.5 - 1) * strength
    image = Image.fromarray(np.clip(128 + total, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(6):
        x, y = int(rng.integers(width)), int(rng.integers(height))
        box = (x, y, x + max(1, width // 6), y + max(1, height // 5))
        draw.ellipse(box, fill=tuple(int(v) for v in rng.integers(0, 256, 3)))
    pixels = np.asarray(image).astype(np.int16) + rng.integers(-4, 5, (height, width, 3))
    result = np.clip(pixels, 0, 255).astype(np.uint8)
    result.setflags(write=False)
    return result


def batch(count: int, height: int, width: int) -> np.ndarray:
    """Return different photographs, uint8 (count, height, width, 3)."""
    return np.stack([photograph(height, width, seed) for seed in range(count)])


def jpeg(image: np.ndarray) -> bytes:
    """Encode an image as a camera does."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=QUALITY, subsampling="4:2:0")
    return file.getvalue()


def write_classes(root: Path, count: int, height: int, width: int) -> Path:
    """Write `count` JPEGs in two folders, one per class; return `root`."""
    encoded = [jpeg(photograph(height, width, seed)) for seed in range(min(count, DIFFERENT))]
    for number in range(count):
        file = root / f"class{number % 2}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded[number % DIFFERENT])
    return root
