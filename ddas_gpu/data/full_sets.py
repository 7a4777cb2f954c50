"""From a data set's name to all of its training images and its test images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddas_gpu import streams
from ddas_gpu.data.cifar import LAYOUTS, find_batches, open_cifar
from ddas_gpu.data.digits import open_digits
from ddas_gpu.data.flat_folder import FlatFolder, is_flat, open_flat
from ddas_gpu.data.folder import FolderSource, read_image
from ddas_gpu.data.locating import find_root, open_source
from ddas_gpu.data.proxies import to_size
from ddas_gpu.data.sources import ArraySource, Images, Source
from ddas_gpu.data.splits import stratified_split
from ddas_gpu.data.svhn import open_svhn, with_extra
from ddas_gpu.search.settings import preset
from ddas_gpu.streams import Stream

if TYPE_CHECKING:
    from ddas_gpu.train.settings import DataSettings

TEST_FOLDERS = ("test", "val", "valid", "validation")


@dataclass(frozen=True)
class FileSource:
    """Images that stay in their files."""

    files: Sequence[Path]
    labels: np.ndarray
    class_names: tuple[str, ...]


Labelled = ArraySource | FileSource


@dataclass(frozen=True)
class FullSets:
    """All images of a data set, in memory or in their files."""

    train: Labelled
    test: Labelled

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names


def full_sets(settings: DataSettings, seed: int, in_memory: bool) -> FullSets:
    """The training and the test images; `in_memory` decodes files to one array."""
    train, test = _open(settings)
    if train.class_names != test.class_names:
        differ = sorted(set(train.class_names) ^ set(test.class_names))
        raise ValueError(
            f"{len(train.class_names)} classes of training images and {len(test.class_names)} of "
            f"test images: they must be the same, but only one of them has {', '.join(differ[:5])}"
        )
    generator = streams.generator(seed, Stream.SPLIT)
    sets = []
    for source, share in ((train, settings.train_share), (test, settings.test_share)):
        indices = np.arange(len(source.labels))
        if share < 1:
            count = max(len(source.class_names), round(share * len(indices)))
            (indices,) = stratified_split(source.labels, source.class_names, (count,), generator)
        if in_memory:
            images = to_size(_read(source, indices), settings.image_size)
            sets.append(ArraySource(images, source.labels[indices], source.class_names))
        else:
            files = [source.files[index] for index in indices]
            sets.append(FileSource(files, source.labels[indices], source.class_names))
    return FullSets(*sets)


def _read(source: Source | FlatFolder, indices: np.ndarray) -> Images:
    if isinstance(source, FlatFolder):
        return [read_image(source.files[index]) for index in indices]
    return source.read(indices)


def _open(settings: DataSettings) -> tuple[Source, Source | FlatFolder]:
    name, size = settings.data, settings.image_size
    if name == "digits":
        open_source(name, settings.root, size)  # complains about a root
        return _open_digits(size)
    train = open_source(name, settings.root, size)
    if settings.svhn_extra:
        train = with_extra(train, find_root(name, settings.root))
    root = find_root(name, settings.root)
    if settings.test_root is not None:
        return train, _open_test(name, find_root(name, settings.test_root), train.class_names)
    if isinstance(train, FolderSource):
        below = [root / folder for folder in TEST_FOLDERS if (root / folder).is_dir()]
        if not below or train.root == root:
            raise ValueError(
                f"{root} has no test images: put them into {root / 'test'} beside "
                f"{root / 'train'}, or name their folder with --test-root"
            )
        return train, _open_test_folder(below[0], train.class_names)
    return train, _open_test(name, root, train.class_names)


def _open_test(name: str, root: Path, class_names: tuple[str, ...]) -> Source | FlatFolder:
    if name == "svhn":
        return open_svhn(root, test=True)
    if name in LAYOUTS:
        batches = find_batches(root, name)
        if batches is not None:
            return open_cifar(batches, name, test=True)
    return _open_test_folder(root, class_names)


def _open_test_folder(folder: Path, class_names: tuple[str, ...]) -> Source | FlatFolder:
    return open_flat(folder, class_names) if is_flat(folder) else FolderSource(folder)


def _open_digits(size: int) -> tuple[ArraySource, ArraySource]:
    """The digits have no test images of their own.

    A search takes 1200 of the 1797. Those of the seed 0 train and the others test: so a policy is
    tested on images that its search has not seen, the same ones whatever the seed.
    """
    source = open_digits(size)
    searched = preset("digits").data
    sizes = (searched.train_images, searched.val_images)
    generator = streams.generator(0, Stream.SPLIT)
    parts = stratified_split(source.labels, source.class_names, sizes, generator)
    train = np.sort(np.concatenate(parts))
    test = np.setdiff1d(np.arange(len(source.labels)), train)
    return tuple(
        ArraySource(source.images[part], source.labels[part], source.class_names)
        for part in (train, test)
    )
