"""Images in one folder per class: your own data, ImageNet, CIFAR as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ddas_gpu.data.decoding import SUFFIXES
from ddas_gpu.data.flat_folder import is_flat, open_flat
from ddas_gpu.data.sources import ImageFiles

LAYOUT = "one folder per class with its images: ROOT/CLASS/IMAGE.jpg or ROOT/train/CLASS/IMAGE.jpg"
TEST_FOLDERS = ("test", "val", "valid", "validation")


class FolderReader:
    """The `Reader` of image files in class folders."""

    layout = LAYOUT

    def search_images(self, root: Path, size: int) -> ImageFiles:
        return open_folder(root)

    def training_images(
        self, root: Path, test_root: Path | None, size: int
    ) -> tuple[ImageFiles, ImageFiles]:
        train = open_folder(root)
        if test_root is None:
            below = [root / name for name in TEST_FOLDERS if (root / name).is_dir()]
            if not below or not (root / "train").is_dir():
                raise ValueError(
                    f"{root} has no test images: put them into {root / 'test'} beside "
                    f"{root / 'train'}, or name their folder with --test-root"
                )
            test_root = below[0]
        return train, open_test_folder(test_root, train.class_names)


def open_folder(root: Path) -> ImageFiles:
    """Open the images under root/CLASS, or under root/train/CLASS where there is a `train`."""
    root = root / "train" if (root / "train").is_dir() else root
    folders = sorted(f for f in root.iterdir() if f.is_dir() and not f.name.startswith("."))
    by_class = {folder.name: _images_in(folder) for folder in folders}
    if not any(by_class.values()):
        raise ValueError(f"{root} holds no class folders with images; it must have {LAYOUT}")
    empty = [name for name, files in by_class.items() if not files]
    if empty:
        raise ValueError(f"the class folder {root / empty[0]} holds no image")
    files = [file for files in by_class.values() for file in files]
    labels = np.repeat(np.arange(len(by_class)), [len(files) for files in by_class.values()])
    return ImageFiles(files, labels, tuple(by_class))


def open_test_folder(folder: Path, class_names: tuple[str, ...]) -> ImageFiles:
    """Open test images in class folders, or in one folder with a file of labels."""
    return open_flat(folder, class_names) if is_flat(folder) else open_folder(folder)


def _images_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)
