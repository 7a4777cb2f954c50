"""scikit-learn's 1,797 handwritten digits: real data that needs no download."""

from __future__ import annotations

import numpy as np
from PIL import Image

from ddas_gpu.data.sources import ArraySource


def open_digits(size: int) -> ArraySource:
    """The 8×8 digits, white on black, enlarged to `size` pixels a side, RGB."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    small = np.round(digits.images * (255 / 16)).astype(np.uint8)
    large = [
        Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC) for image in small
    ]
    images = np.stack([np.asarray(image.convert("RGB")) for image in large])
    return ArraySource(images, digits.target.astype(np.int64), tuple("0123456789"))
