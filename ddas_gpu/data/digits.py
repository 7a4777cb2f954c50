"""1,797 handwritten digits that come with the package: real data that needs no download.

They are the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak
(1998), UCI Machine Learning Repository, doi:10.24432/C50P49, licensed under CC BY 4.0; the same
images in the same order as scikit-learn's `load_digits`.
"""

from __future__ import annotations

from importlib import resources

import numpy as np
from PIL import Image

from ddas_gpu.data.sources import ArraySource

WHITE = 16  # the largest value in the file


def open_digits(size: int) -> ArraySource:
    """Return the 8×8 digits, white on black, enlarged to `size` × `size` RGB."""
    file = resources.files("ddas_gpu.data").joinpath("digits.npz")
    with file.open("rb") as content, np.load(content, allow_pickle=False) as archive:
        raw, labels = archive["images"], archive["labels"]
    small = np.round(raw * (255 / WHITE)).astype(np.uint8)
    large = [
        Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC) for image in small
    ]
    images = np.stack([np.asarray(image.convert("RGB")) for image in large])
    return ArraySource(images, labels.astype(np.int64), tuple("0123456789"))
