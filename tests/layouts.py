"""Small copies of data sets in the layouts that people have on disk."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

RANDOM = np.random.default_rng(0)


def write_cifar(root: Path, name: str = "cifar10", count: int = 40) -> Path:
    """The published pickles, with few images."""
    folder = root / {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}[name]
    folder.mkdir(parents=True)
    key, classes = ("labels", 10) if name == "cifar10" else ("fine_labels", 100)
    names = [f"class {number:02}" for number in range(classes)]
    files = {"cifar10": [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]}
    for file in files.get(name, ["train", "test"]):
        planes = RANDOM.integers(0, 256, (count, 3072), dtype=np.uint8)
        content = {"data": planes, key: [n % classes for n in range(count)]}
        (folder / file).write_bytes(pickle.dumps(content, protocol=2))
    meta = {"label_names": names} if name == "cifar10" else {"fine_label_names": names}
    meta_file = "batches.meta" if name == "cifar10" else "meta"
    (folder / meta_file).write_bytes(pickle.dumps(meta, protocol=2))
    return root


def write_svhn(root: Path, count: int = 40) -> Path:
    root.mkdir(parents=True)
    for part in ("train", "test"):
        images = RANDOM.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
        labels = np.arange(count).reshape(-1, 1) % 10 + 1
        savemat(root / f"{part}_32x32.mat", {"X": images, "y": labels})
    return root


def write_images(root: Path, classes: tuple[str, ...], count: int, size: int = 40) -> Path:
    for part in ("train", "val"):
        for name in classes:
            (root / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = RANDOM.integers(0, 256, (size, size + 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / part / name / f"{number}.jpeg")
    return root
