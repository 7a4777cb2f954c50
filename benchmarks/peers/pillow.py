"""Pillow: the definition of the ops, one image at a time.

`pillow` converts every image from and to an array, as a data loader does; `pillow_without_arrays`
does not, for programs whose images are PIL images already.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image

from ddas_gpu.ops.table import OPS
from peers.common import Call, argument_of, for_each


def pillow(name: str, images: np.ndarray, threads: int = 1) -> Call:
    """Map arrays to arrays."""
    apply = _op(name, images.shape[1:3])
    return for_each(images, lambda image: np.asarray(apply(Image.fromarray(image))), threads)


def pillow_without_arrays(name: str, images: np.ndarray, threads: int = 1) -> Call:
    """Map PIL images to PIL images."""
    pictures = [Image.fromarray(image) for image in images]
    return for_each(pictures, _op(name, images.shape[1:3]), threads)


def _op(name: str, size: tuple[int, int]) -> Callable[[Image.Image], Image.Image]:
    op, argument = OPS[name], argument_of(name)
    arguments = () if argument is None else (argument,)
    if op.centred:
        arguments = (*arguments, (size[1] // 2, size[0] // 2))
    return lambda image: op.pillow(image, *arguments)
