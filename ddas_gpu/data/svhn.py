"""SVHN's cropped digits as published: a MATLAB file of 32 × 32 × 3 × N bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ddas_gpu.data.matlab import read_mat
from ddas_gpu.data.sources import ImageArrays

FILE = "train_32x32.mat"
TEST_FILE = "test_32x32.mat"
EXTRA_FILE = "extra_32x32.mat"
WHAT = "SVHN's MATLAB file of X and y"


class SvhnReader:
    """The `Reader` of the cropped digits."""

    layout = f"the published {FILE}"

    def search_images(self, root: Path, size: int) -> ImageArrays:
        return read_digits(root, FILE)

    def training_images(
        self, root: Path, test_root: Path | None, size: int
    ) -> tuple[ImageArrays, ImageArrays]:
        return read_digits(root, FILE), read_digits(test_root or root, TEST_FILE)


def with_extra(train: ImageArrays, root: Path) -> ImageArrays:
    """Add the 531,131 easier digits that were published with the training digits."""
    extra = read_digits(root, EXTRA_FILE)
    images = np.concatenate([train.images, extra.images])
    return ImageArrays(images, np.concatenate([train.labels, extra.labels]), train.class_names)


def read_digits(root: Path, name: str) -> ImageArrays:
    """Read the digits of a file. MATLAB's label 10 is the digit 0."""
    path = root / name
    if not path.is_file():
        raise ValueError(f"{root} has no {name}: download it from the SVHN page into that folder")
    content = read_mat(path, WHAT, ("X", "y"))
    pixels, labels = content["X"], content["y"]
    if not isinstance(pixels, np.ndarray) or not isinstance(labels, np.ndarray):
        raise ValueError(f"{path} is not {WHAT}: they are no arrays")
    expected = pixels.ndim == 4 and pixels.shape[:3] == (32, 32, 3) and pixels.dtype == np.uint8
    if not expected or pixels.shape[3] != labels.size or not labels.size:
        raise ValueError(f"{path} holds {pixels.dtype} {pixels.shape}, not 32 × 32 RGB digits")
    if not np.isin(labels, range(11)).all():
        raise ValueError(f"{path} is not {WHAT}: a label is not a digit")
    images = np.ascontiguousarray(pixels.transpose(3, 0, 1, 2))
    return ImageArrays(images, labels.reshape(-1).astype(np.int64) % 10, tuple("0123456789"))
