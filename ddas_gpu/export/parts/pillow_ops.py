"""One op on one image, with Pillow."""

from __future__ import annotations

from typing import Any

from PIL import Image

from ddas_gpu.export.parts.constants import CENTRED, FILL, FILLED, OPS, Argument


def apply(image: Image.Image, op: str, argument: Argument, rng: Any) -> Image.Image:
    """Apply an op to an RGB image; `rng` draws the centre of Cutout."""
    arguments: list[Any] = [] if argument is None else [argument]
    if op in CENTRED:
        arguments.append((rng.randrange(image.width), rng.randrange(image.height)))
    if op in FILLED:
        arguments.append(FILL)
    return OPS[op](image, *arguments)
