"""SVHN's cropped digits as published: a MATLAB file of 32 × 32 × 3 × N bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ddas_gpu.data.sources import ArraySource

FILE = "train_32x32.mat"
TEST_FILE = "test_32x32.mat"
EXTRA_FILE = "extra_32x32.mat"


def open_svhn(root: Path, *, test: bool = False) -> ArraySource:
    """The training or the test digits."""
    return _read(root, TEST_FILE if test else FILE)


def with_extra(train: ArraySource, root: Path) -> ArraySource:
    """The training digits and the half a million easier ones that were published with them."""
    extra = _read(root, EXTRA_FILE)
    images = np.concatenate([train.images, extra.images])
    return ArraySource(images, np.concatenate([train.labels, extra.labels]), train.class_names)


def _read(root: Path, name: str) -> ArraySource:
    """The digits of a file; MATLAB's label 10 is the digit 0."""
    from scipy.io import loadmat

    path = root / name
    if not path.is_file():
        raise ValueError(f"{root} has no {name}: download it from the SVHN page into that folder")
    try:
        content = loadmat(path, variable_names=("X", "y"))
        images = np.ascontiguousarray(content["X"].transpose(3, 0, 1, 2))
        labels = content["y"].reshape(-1).astype(np.int64) % 10
    # scipy raises whatever it stumbles over in a damaged file
    except Exception as error:
        raise ValueError(f"{path} is not SVHN's MATLAB file of X and y: {error}") from None
    if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3) or len(images) != len(labels):
        raise ValueError(f"{path} holds {images.dtype} {images.shape}, not 32 × 32 RGB digits")
    return ArraySource(images, labels, tuple("0123456789"))
