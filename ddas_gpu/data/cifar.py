"""CIFAR-10 and CIFAR-100 as published: 3 × 32 × 32 planes, pickled or binary, unpacked or not.

Image files in class folders are read, too.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from ddas_gpu.data.folder import LAYOUT as FOLDER_LAYOUT
from ddas_gpu.data.folder import FolderReader, open_test_folder
from ddas_gpu.data.sources import ImageArrays, Labelled
from ddas_gpu.unpickling import restricted_load

LARGEST = 1 << 28  # bytes of a file; the largest published has 154 MB


@dataclass(frozen=True)
class Layout:
    """One of the published versions."""

    folder: str  # in the archive
    archive: str
    train: tuple[str, ...]
    test: str
    names: str  # the file with the class names
    read_batch: Callable[[bytes, str], tuple[np.ndarray, np.ndarray]]  # planes, labels
    read_names: Callable[[bytes, str], Sequence[str]]


def pickled(key: str) -> Callable[[bytes, str], tuple[np.ndarray, np.ndarray]]:
    """Return a reader of batches whose labels are under `key`."""

    def read(content: bytes, path: str) -> tuple[np.ndarray, np.ndarray]:
        batch = restricted_load(content, path)
        planes, labels = batch["data"], batch[key]
        if not isinstance(planes, np.ndarray):
            raise ValueError(f"{path}: its data is not an array")
        if not isinstance(labels, list) or not all(type(label) is int for label in labels):
            raise ValueError(f"{path}: its {key} is not a list of integers")
        return planes, np.array(labels, dtype=np.int64)

    return read


def binary(labels: int) -> Callable[[bytes, str], tuple[np.ndarray, np.ndarray]]:
    """Return a reader of rows of `labels` labels, of which the last counts, and 3072 bytes."""

    def read(content: bytes, path: str) -> tuple[np.ndarray, np.ndarray]:
        rows = np.frombuffer(content, np.uint8).reshape(-1, labels + 3072)
        return rows[:, labels:], rows[:, labels - 1]

    return read


def pickled_names(key: str) -> Callable[[bytes, str], Sequence[str]]:
    def read(content: bytes, path: str) -> Sequence[str]:
        names = restricted_load(content, path)[key]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{path}: its {key} is not a list of names")
        return names

    return read


def text_names(content: bytes, path: str) -> Sequence[str]:
    return content.decode().split()


FIVE = tuple(f"data_batch_{number}" for number in range(1, 6))
LAYOUTS: dict[str, tuple[Layout, ...]] = {
    "cifar10": (
        Layout(
            folder="cifar-10-batches-py",
            archive="cifar-10-python.tar.gz",
            train=FIVE,
            test="test_batch",
            names="batches.meta",
            read_batch=pickled("labels"),
            read_names=pickled_names("label_names"),
        ),
        Layout(
            folder="cifar-10-batches-bin",
            archive="cifar-10-binary.tar.gz",
            train=tuple(f"{file}.bin" for file in FIVE),
            test="test_batch.bin",
            names="batches.meta.txt",
            read_batch=binary(1),
            read_names=text_names,
        ),
    ),
    "cifar100": (
        Layout(
            folder="cifar-100-python",
            archive="cifar-100-python.tar.gz",
            train=("train",),
            test="test",
            names="meta",
            read_batch=pickled("fine_labels"),
            read_names=pickled_names("fine_label_names"),
        ),
        Layout(
            folder="cifar-100-binary",
            archive="cifar-100-binary.tar.gz",
            train=("train.bin",),
            test="test.bin",
            names="fine_label_names.txt",
            read_batch=binary(2),
            read_names=text_names,
        ),
    ),
}


@dataclass(frozen=True)
class CifarReader:
    """The `Reader` of one of the two data sets."""

    name: str  # a key of LAYOUTS

    @property
    def layout(self) -> str:
        return f"the published {LAYOUTS[self.name][0].folder}, or {FOLDER_LAYOUT}"

    def search_images(self, root: Path, size: int) -> Labelled:
        batches = find_batches(root, self.name)
        if batches is None:
            return FolderReader().search_images(root, size)
        return open_cifar(batches, self.name)

    def training_images(
        self, root: Path, test_root: Path | None, size: int
    ) -> tuple[Labelled, Labelled]:
        train = self.search_images(root, size)
        if isinstance(train, ImageArrays) or test_root is not None:
            place = test_root or root
            batches = find_batches(place, self.name)
            if batches is not None:
                return train, open_cifar(batches, self.name, test=True)
            return train, open_test_folder(place, train.class_names)
        return FolderReader().training_images(root, None, size)


@dataclass(frozen=True)
class Batches:
    """A published version, and the folder or the archive where it is."""

    place: Path
    layout: Layout

    def read(self, files: Sequence[str]) -> list[bytes]:
        if self.place.is_dir():
            return [(self.place / file).read_bytes() for file in files]
        found = {}
        try:
            # One pass in the order of the archive: going back would unpack it anew.
            with tarfile.open(self.place) as archive:
                for member in archive:
                    file = PurePosixPath(member.name).name
                    if file in files and member.isfile():
                        if member.size > LARGEST:
                            raise ValueError(f"{self.place} is damaged: {file} is too large")
                        content = archive.extractfile(member)
                        assert content is not None  # None only for what is not a file
                        found[file] = content.read()
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise ValueError(f"{self.place} is damaged: {error}") from None
        missing = [file for file in files if file not in found]
        if missing:
            raise ValueError(f"{self.place} has no {missing[0]}")
        return [found[file] for file in files]


def find_batches(root: Path, name: str) -> Batches | None:
    """Find the published batches in `root`, in the archive's folder in it, or in the archive."""
    for layout in LAYOUTS[name]:
        for folder in (root, root / layout.folder):
            if (folder / layout.train[0]).is_file():
                return Batches(folder, layout)
    for layout in LAYOUTS[name]:
        if (root / layout.archive).is_file():
            return Batches(root / layout.archive, layout)
    return None


def open_cifar(batches: Batches, name: str, *, test: bool = False) -> ImageArrays:
    """Open the training or the test images."""
    place, layout = batches.place, batches.layout
    files = (layout.test,) if test else layout.train
    *contents, meta = batches.read([*files, layout.names])
    try:
        parts = [
            layout.read_batch(content, f"{place / file}")
            for file, content in zip(files, contents, strict=True)
        ]
        planes = np.concatenate([planes for planes, _ in parts])
        images = np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        labels = np.concatenate([labels for _, labels in parts]).astype(np.int64)
        names = tuple(layout.read_names(meta, f"{place / layout.names}"))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{place} does not hold the published {name} batches: {error}") from None
    fits = len(images) == len(labels) > 0 and images.dtype == np.uint8
    if not fits or labels.min() < 0 or labels.max() >= len(names):
        raise ValueError(f"{place}: the images and labels of {name} do not fit together")
    return ImageArrays(images, labels, names)
