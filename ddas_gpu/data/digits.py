"""1,797 handwritten digits that come with the package: real data that needs no download.

They are the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak
(1998), UCI Machine Learning Repository, doi:10.24432/C50P49, licensed under CC BY 4.0; the same
images in the same order as scikit-learn's `load_digits`.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
from PIL import Image

from ddas_gpu import streams
from ddas_gpu.data.sources import ImageArrays
from ddas_gpu.data.splits import stratified_split
from ddas_gpu.streams import Stream

SEARCHED = (300, 900)  # training and validation images of the search's preset

WHITE = 16  # the largest value in the file


class DigitsReader:
    """The `Reader` of the digits, which have no folder and no test images of their own."""

    layout = ""

    def search_images(self, root: Path | None, size: int) -> ImageArrays:
        if root is not None:
            raise ValueError(f"the digits are part of ddas_gpu and are not read from {root}")
        return open_digits(size)

    def training_images(
        self, root: Path | None, test_root: Path | None, size: int
    ) -> tuple[ImageArrays, ImageArrays]:
        """Train on the images that a search with seed 0 takes, and test on the others.

        So a policy is tested on images that its search has not seen, and on the same ones
        whatever the seed.
        """
        source = self.search_images(root or test_root, size)
        generator = streams.generator(0, Stream.SPLIT)
        parts = stratified_split(source.labels, source.class_names, SEARCHED, generator)
        train = np.sort(np.concatenate(parts))
        test = np.setdiff1d(np.arange(len(source)), train)
        return source.subset(train), source.subset(test)


def open_digits(size: int) -> ImageArrays:
    """Return the 8×8 digits, white on black, enlarged to `size` × `size` RGB."""
    file = resources.files("ddas_gpu.data").joinpath("digits.npz")
    with file.open("rb") as content, np.load(content, allow_pickle=False) as archive:
        raw, labels = archive["images"], archive["labels"]
    small = np.round(raw * (255 / WHITE)).astype(np.uint8)
    large = [
        Image.fromarray(image).resize((size, size), Image.Resampling.BICUBIC) for image in small
    ]
    images = np.stack([np.asarray(image.convert("RGB")) for image in large])
    return ImageArrays(images, labels.astype(np.int64), tuple("0123456789"))
