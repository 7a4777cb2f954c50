"""CIFAR-10 and CIFAR-100 as published: pickled batches of 3 × 32 × 32 planes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ddas_gpu.data.sources import ArraySource
from ddas_gpu.unpickling import restricted_load

# name: (folder in the published archive, training files, labels, class names and their file)
LAYOUTS = {
    "cifar10": (
        "cifar-10-batches-py",
        tuple(f"data_batch_{number}" for number in range(1, 6)),
        "labels",
        ("batches.meta", "label_names"),
    ),
    "cifar100": ("cifar-100-python", ("train",), "fine_labels", ("meta", "fine_label_names")),
}


TEST_FILES = {"cifar10": ("test_batch",), "cifar100": ("test",)}


def find_batches(root: Path, name: str) -> Path | None:
    """The folder of the published batches: `root` itself or the archive's folder in it."""
    folder, files, _, _ = LAYOUTS[name]
    return next((f for f in (root, root / folder) if (f / files[0]).is_file()), None)


def open_cifar(folder: Path, name: str, *, test: bool = False) -> ArraySource:
    """The training or the test images of the batches in `folder`."""
    _, files, labels_key, (meta, names_key) = LAYOUTS[name]
    files = TEST_FILES[name] if test else files
    batches = [_read(folder / file) for file in files]
    try:
        planes = np.concatenate([batch["data"] for batch in batches])
        images = np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels = np.concatenate([batch[labels_key] for batch in batches]).astype(np.int64)
        names = tuple(str(name) for name in _read(folder / meta)[names_key])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder} does not hold the published {name} batches: {error}") from None
    if len(images) != len(labels) or images.dtype != np.uint8 or labels.max() >= len(names):
        raise ValueError(f"{folder}: the images and labels of {name} do not fit together")
    return ArraySource(images, labels, names)


def _read(path: Path) -> dict:
    return restricted_load(path.read_bytes(), path)
