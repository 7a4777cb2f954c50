"""Where a data set lies, and which reader opens it."""

from __future__ import annotations

import os
from pathlib import Path

from ddas_gpu.data import coco
from ddas_gpu.data.cifar import LAYOUTS, find_batches, open_cifar
from ddas_gpu.data.digits import open_digits
from ddas_gpu.data.folder import LAYOUT, FolderSource
from ddas_gpu.data.sources import Source
from ddas_gpu.data.svhn import FILE, open_svhn

# What a root must look like, in the words of the error messages.
EXPECTED = {
    "cifar10": f"the published cifar-10-batches-py, or {LAYOUT}",
    "cifar100": f"the published cifar-100-python, or {LAYOUT}",
    "svhn": f"the published {FILE}",
    "imagenet": LAYOUT,
    "folder": LAYOUT,
    "coco": coco.LAYOUT,
}


def find_root(name: str, root: Path | None) -> Path:
    """`root` if given, else $DDAS_DATA/NAME, else data/NAME."""
    if root is not None:
        tried = [root]
    elif name == "folder":
        raise ValueError(f"--data folder needs --root DIR, a folder with {LAYOUT}")
    else:
        base = os.environ.get("DDAS_DATA")
        tried = [*([Path(base) / name] if base else []), Path("data") / name]
    for folder in tried:
        if folder.is_dir():
            return folder
    looked = " or ".join(str(folder) for folder in tried)
    raise ValueError(f"{name} not found: no folder {looked}; it must hold {EXPECTED[name]}")


def open_source(name: str, root: Path | None, size: int) -> Source:
    """The training images of data set `name`, to be used at `size` pixels a side."""
    if name == "digits":
        if root is not None:
            raise ValueError(f"the digits come with scikit-learn and are not read from {root}")
        return open_digits(size)
    root = find_root(name, root)
    if name == "svhn":
        return open_svhn(root)
    if name in LAYOUTS:
        batches = find_batches(root, name)
        if batches is not None:
            return open_cifar(batches, name)
    # Twice the size leaves a random crop enough to choose from.
    return FolderSource(root, shortest=2 * size)
