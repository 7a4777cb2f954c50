"""From a data set's name to the training and validation set of the search."""

from __future__ import annotations

import importlib.util
import warnings
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from ddas_gpu import streams
from ddas_gpu.data.clean import AsTheyAre, CentreCrop, PadCropFlip, ResizedCropFlip
from ddas_gpu.data.datasets import DataSet
from ddas_gpu.data.file_set import FileSet
from ddas_gpu.data.locating import open_source
from ddas_gpu.data.sources import Images, Source
from ddas_gpu.data.splits import some_classes, stratified_split
from ddas_gpu.search.settings import DataSettings
from ddas_gpu.streams import Stream

if TYPE_CHECKING:
    from ddas_gpu.detection import DetectionSet


def proxy_sets(
    settings: DataSettings, seed: int, device: str = "cpu"
) -> tuple[DataSet | FileSet, DataSet | FileSet] | tuple[DetectionSet, DetectionSet]:
    """The training and the validation set of a search, disjoint; classes stratified.

    The validation images come out of the same training images or, with `val_root`, out of
    another folder with the same classes. `device` is where files are decoded for each batch.
    """
    if settings.data == "coco":
        from ddas_gpu.detection.proxies import coco_sets

        return coco_sets(settings, seed)
    generator = streams.generator(seed, Stream.SPLIT)
    source = open_source(settings.data, settings.root, settings.image_size)
    sizes = (settings.train_images, settings.val_images)
    names = source.class_names
    kept = np.arange(len(names))
    if settings.classes is not None:
        kept = some_classes(names, settings.classes, generator)
    even = settings.classes is not None
    if settings.val_root is None:
        train, val = _choose(source, kept, sizes, generator, even)
        val_source = source
    else:
        val_source = open_source(settings.data, settings.val_root, settings.image_size)
        _check_same_classes(settings, source, val_source)
        (train,) = _choose(source, kept, sizes[:1], generator, even)
        (val,) = _choose(val_source, kept, sizes[1:], generator, even)
    class_names = tuple(names[c] for c in kept)
    size, flip = settings.image_size, settings.flip
    if settings.crop == "pad":
        before, whole = PadCropFlip(settings.padding, flip), AsTheyAre()
    else:
        before, whole = ResizedCropFlip(size, flip), CentreCrop(size)
    sets: list[DataSet | FileSet] = []
    from_files = settings.decode == "each" and dali_found()
    for origin, indices, transform in ((source, train, before), (val_source, val, whole)):
        labels = np.searchsorted(kept, origin.labels[indices])
        if from_files:
            if not hasattr(origin, "files"):
                raise ValueError(f"--decode each needs image files; {settings.data} has none here")
            files = [origin.files[index] for index in indices]
            training = transform is before
            sets.append(FileSet(files, labels, class_names, size, training, flip, device=device))
            sets[-1].check()
            continue
        images = origin.read(indices)
        if settings.crop == "pad":
            images = to_size(images, size)
        members = tuple(origin.name_of(index) for index in indices)
        sets.append(DataSet(images, labels, class_names, transform, members))
    train_set, val_set = sets
    return train_set, val_set.turned() if settings.sanity_check == "rotate90" else val_set


def dali_found() -> bool:
    """Whether DALI is there; a warning says what happens without it."""
    if importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.dali"):
        return True
    warnings.warn(
        "DALI is not installed: the images are decoded once and kept in memory",
        RuntimeWarning,
        stacklevel=3,
    )
    return False


def _choose(
    source: Source,
    kept: np.ndarray,
    sizes: tuple[int, ...],
    generator: np.random.Generator,
    even: bool,
) -> tuple[np.ndarray, ...]:
    """Stratified index sets out of the images of the classes kept."""
    places = np.flatnonzero(np.isin(source.labels, kept))
    labels = np.searchsorted(kept, source.labels[places])
    names = tuple(source.class_names[c] for c in kept)
    parts = stratified_split(labels, names, sizes, generator, even=even)
    return tuple(places[part] for part in parts)


def _check_same_classes(settings: DataSettings, source: Source, other: Source) -> None:
    if source.class_names != other.class_names:
        differ = set(source.class_names) ^ set(other.class_names)
        raise ValueError(
            f"--val-root {settings.val_root} must have the same classes as the training images, "
            f"but only one of them has: {', '.join(sorted(differ)[:5])}"
        )


def to_size(images: Images, size: int) -> np.ndarray:
    """All images as one array of `size` × `size`, scaled where they are not that already."""
    if isinstance(images, np.ndarray) and images.shape[1:3] == (size, size):
        return images
    resized = [Image.fromarray(i).resize((size, size), Image.Resampling.BILINEAR) for i in images]
    return np.stack([np.asarray(image) for image in resized])
