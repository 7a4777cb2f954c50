"""SVHN's cropped digits as published: a MATLAB file of 32 × 32 × 3 × N bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ddas_gpu.data.matlab import read_mat
from ddas_gpu.data.sources import ArraySource

FILE = "train_32x32.mat"
TEST_FILE = "test_32x32.mat"
EXTRA_FILE = "extra_32x32.mat"
WHAT = "SVHN's MATLAB file of X and y"


def open_svhn(root: Path, *, test: bool = False) -> ArraySource:
    """Return the training or the test digits."""
    return _read(root, TEST_FILE if test else FILE)


def with_extra(train: ArraySource, root: Path) -> ArraySource:
    """Return the training digits and the 531,131 easier ones that were published with them."""
    extra = _read(root, EXTRA_FILE)
    images = np.concatenate([train.images, extra.images])
    return ArraySource(images, np.concatenate([train.labels, extra.labels]), train.class_names)


def _read(root: Path, name: str) -> ArraySource:
    """Read the digits of a file. MATLAB's label 10 is the digit 0."""
    path = root / name
    if not path.is_file():
        raise ValueError(f"{root} has no {name}: download it from the SVHN page into that folder")
    content = read_mat(path, WHAT, variable_names=("X", "y"))
    missing = [variable for variable in ("X", "y") if variable not in content]
    if missing:
        raise ValueError(f"{path} is not {WHAT}: it has no {missing[0]}")
    pixels, labels = content["X"], content["y"].reshape(-1)
    expected = pixels.ndim == 4 and pixels.shape[:3] == (32, 32, 3) and pixels.dtype == np.uint8
    if not expected or pixels.shape[3] != len(labels):
        raise ValueError(f"{path} holds {pixels.dtype} {pixels.shape}, not 32 × 32 RGB digits")
    images = np.ascontiguousarray(pixels.transpose(3, 0, 1, 2))
    return ArraySource(images, labels.astype(np.int64) % 10, tuple("0123456789"))
