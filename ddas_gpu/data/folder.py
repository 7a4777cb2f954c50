"""Images in one folder per class: your own data, ImageNet, CIFAR as files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ddas_gpu.data.flat_folder import is_flat, open_flat
from ddas_gpu.data.sources import ImageFiles, is_hidden, is_image

LAYOUT = "one folder per class with its images: ROOT/CLASS/IMAGE.jpg or ROOT/train/CLASS/IMAGE.jpg"
TRAIN_FOLDER = "train"
TEST_FOLDERS = ("test", "val", "valid", "validation")
PARTS = frozenset((TRAIN_FOLDER, "training", "testing", *TEST_FOLDERS))  # of a data set
BELOW = "images"  # a folder between class and images, as Tiny ImageNet has it


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
            if not below or not (root / TRAIN_FOLDER).is_dir():
                raise ValueError(
                    f"{root} has no test images: put them into {root / 'test'} beside "
                    f"{root / TRAIN_FOLDER}, or name their folder with --test-root"
                )
            test_root = below[0]
        return train, open_test_folder(test_root, train.class_names)


def open_folder(root: Path) -> ImageFiles:
    """Open the images under root/CLASS, or under root/train/CLASS where `train` has folders."""
    if (root / TRAIN_FOLDER).is_dir() and _list(root / TRAIN_FOLDER).folders:
        root = root / TRAIN_FOLDER
    found = {folder.name: _list_class(folder) for folder in _list(root).folders}
    _refuse_other_layouts(root, found)
    files = [file for content in found.values() for file in content.images]
    counts = [len(content.images) for content in found.values()]
    return ImageFiles(files, np.repeat(np.arange(len(found)), counts), tuple(found))


def _refuse_other_layouts(root: Path, found: dict[str, Content]) -> None:
    """Raise a ValueError if the folders under `root` cannot be meant as classes."""
    expected = f"it must have {LAYOUT}"
    for content in found.values():
        if content.folders:
            raise ValueError(
                f"{root} is no folder of classes, because {content.folders[0]} is a folder in a "
                f"folder: {_deeper(root, found)}{expected}"
            )
    parts = [name for name in found if name.lower() in PARTS]
    if len(parts) > 1:
        raise ValueError(
            f"{root} holds {' and '.join(parts)}, which are parts of a data set, not classes: "
            f"{expected}"
        )
    if not any(content.images for content in found.values()):
        raise ValueError(f"{root} holds no class folders with images; {expected}")
    for name, content in found.items():
        if not content.images:
            raise ValueError(f"the class folder {root / name} holds no image")


def _deeper(root: Path, names: Iterable[str]) -> str:
    """Return the advice to name a folder one level down, if one of them has the right layout."""
    for name in names:
        try:
            open_folder(root / name)
        except (ValueError, OSError):
            continue
        return f"did you mean {root / name}? If not, "
    return ""


def open_test_folder(folder: Path, class_names: tuple[str, ...]) -> ImageFiles:
    """Open test images in class folders, or in one folder with a file of labels."""
    return open_flat(folder, class_names) if is_flat(folder) else open_folder(folder)


class Content(NamedTuple):
    """What lies in a folder, without hidden files."""

    folders: list[Path]
    images: list[Path]


def _list(folder: Path) -> Content:
    folders, images = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            path = folder / entry.name
            if is_image(path):  # a folder of such a name as well: reading it says so
                images.append(path)
            elif not is_hidden(path) and entry.is_dir():
                folders.append(path)
    return Content(sorted(folders), sorted(images))


def _list_class(folder: Path) -> Content:
    content = _list(folder)
    only_below = [f.name for f in content.folders] == [BELOW] and not content.images
    return _list(folder / BELOW) if only_below else content
