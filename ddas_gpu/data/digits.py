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

TRAINING = 1200  # the others are for tests; drawn once, whatever the seed of a run

WHITE = 16  # the largest value in the file


class DigitsReader:
    """The `Reader` of the digits. A search never sees the images that a training is tested on."""

    layout = ""

    def search_images(self, root: Path | None, size: int) -> ImageArrays:
        return self.training_images(root, None, size)[0]

    def training_images(
        self, root: Path | None, test_root: Path | None, size: int
    ) -> tuple[ImageArrays, ImageArrays]:
        folder = root or test_root
        if folder is not None:
            raise ValueError(f"the digits are part of ddas_gpu and are not read from {folder}")
        source = open_digits(size)
        generator = streams.generator(0, Stream.SPLIT)
        (train,) = stratified_split(source.labels, source.class_names, (TRAINING,), generator)
        train = np.sort(train)
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
