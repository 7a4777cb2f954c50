"""A user's own data as a source: a Dataset, arrays, a folder, a Hugging Face data set.

`Examples` reads an example when it is asked for, `ExampleArrays` has read all of them. A target
may be anything that torch's `default_collate` takes: numbers, vectors, tuples and dicts of them.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import default_collate

from ddas_gpu import streams
from ddas_gpu.data.decoding import read_image, resized, to_rgb
from ddas_gpu.data.folder import open_folder
from ddas_gpu.data.sources import ImageArrays, checksum_of
from ddas_gpu.data.workers import in_workers, kept_generators, seed_generators
from ddas_gpu.streams import Stream

COLUMNS = ("image", "label")
LOOKED_AT = 16  # examples that the size of all is judged by
CHECKED = 64  # examples that stand for a data set which is not read as a whole
CHUNK = 16  # examples that a worker reads before it hands them over


@dataclass(frozen=True)
class Examples:
    """Images with targets, read one by one: `items[place]` is (image, target), or a mapping."""

    items: Any
    name: str
    """What the data is called in policy.json."""
    class_names: tuple[str, ...] = ()
    columns: tuple[str, str] = COLUMNS
    """Image and target in an item that is a mapping."""
    places: np.ndarray | None = None
    """The items of a subset."""
    seed: int = 0
    size: tuple[int, int] | None = None
    """Height and width that all images must have; None for any."""

    def __len__(self) -> int:
        return len(self.items) if self.places is None else len(self.places)

    def place(self, sample: int) -> int:
        return int(sample if self.places is None else self.places[sample])

    def subset(self, indices: np.ndarray) -> Examples:
        places = np.array([self.place(index) for index in indices], np.int64)
        return dataclasses.replace(self, places=places)

    def members(self) -> tuple[str, ...]:
        return tuple(str(self.place(sample)) for sample in range(len(self)))

    def read(self, sample: int, epoch: int = 0) -> tuple[np.ndarray, Any]:
        """Return uint8 (H, W, 3) and the target.

        What the data set draws from the generators of `random`, NumPy or torch is a function of
        (seed, epoch, sample).
        """
        place = self.place(sample)
        seed_generators(streams.number(self.seed, Stream.EXAMPLES, epoch, place))
        image, target = self._split(self.items[place])
        pixels = to_pixels(image)
        if self.size not in (None, pixels.shape[:2]):
            raise ValueError(
                f"image {place} of {self.name} has {pixels.shape[:2]} pixels, others {self.size}: "
                "targets with places in the image need images of one size"
            )
        return pixels, target

    def _split(self, item: Any) -> tuple[Any, Any]:
        if isinstance(item, Mapping):
            missing = [name for name in self.columns if name not in item]
            if missing:
                raise ValueError(
                    f"{self.name} has no column {missing[0]!r}; it has: {', '.join(map(str, item))}"
                )
            return item[self.columns[0]], item[self.columns[1]]
        if isinstance(item, (tuple, list)) and len(item) == 2:
            return item[0], item[1]
        found = f"{len(item)} values" if isinstance(item, (tuple, list)) else type(item).__name__
        raise ValueError(
            f"an item of {self.name} must be (image, target) or a mapping, not {found}"
        )

    def look(self, indices: Iterable[int]) -> list[tuple[np.ndarray, Any]]:
        """Read a few examples in this process, whose random generators stay as they are."""
        with kept_generators():
            return [self.read(index) for index in indices]

    def fingerprint(self) -> int:
        """Of the number of examples and of some of them: reading all takes an epoch."""
        chosen = np.linspace(0, len(self) - 1, min(CHECKED, len(self))).astype(int)
        checksum = zlib.crc32(f"{len(self)}".encode())
        for image, target in self.look(chosen):
            checksum = checksum_of(image, target_checksum(target, checksum))
        return checksum

    def in_memory(
        self, workers: int, size: tuple[int, int] | None = None, shortest: int | None = None
    ) -> ExampleArrays:
        """Read all examples once, in worker processes; arrays in this one.

        size: scale every image to (height, width); shortest: bound its shorter side.
        """
        workers = 0 if type(self.items) is Pairs else workers
        keys = [(0, part) for part in np.array_split(np.arange(len(self)), -(-len(self) // CHUNK))]
        make = partial(_scaled, size, shortest)
        pairs = [pair for batch in in_workers(self.read, keys, make, workers) for pair in batch]
        images, targets = [image for image, _ in pairs], [target for _, target in pairs]
        one_size = len({image.shape for image in images}) == 1
        return ExampleArrays(
            np.stack(images) if one_size else images,
            np.arange(len(images)),
            self.class_names,
            self.members(),
            targets,
            self.name,
        )


@dataclass(frozen=True)
class ExampleArrays(ImageArrays):
    """Decoded images with targets; `labels` are their numbers."""

    targets: Sequence[Any] = ()
    name: str = ""

    def subset(self, indices: np.ndarray) -> ExampleArrays:
        chosen = super().subset(indices)
        assert isinstance(chosen, ExampleArrays)
        return dataclasses.replace(chosen, targets=[self.targets[index] for index in indices])

    def fingerprint(self) -> int:
        checksum = super().fingerprint()
        for target in self.targets:
            checksum = target_checksum(target, checksum)
        return checksum


@dataclass(frozen=True)
class Pairs:
    """A pair of sequences as a data set."""

    images: Any
    targets: Any

    def __post_init__(self) -> None:
        if len(self.images) != len(self.targets):
            raise ValueError(f"{len(self.images)} images, but {len(self.targets)} targets")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.images[index], self.targets[index]


@dataclass(frozen=True)
class Files(Pairs):
    """Paths of image files, and targets, as a data set."""

    def __getitem__(self, index: int) -> tuple[np.ndarray, Any]:
        return read_image(Path(self.images[index])), self.targets[index]


def open_examples(data: Any, columns: tuple[str, str] = COLUMNS, seed: int = 0) -> Examples:
    """Open a user's data.

    data: a torch Dataset or anything with `len` and items (image, target) or mappings; a pair
        (images, targets) of arrays or (paths, targets) of image files; a folder with one folder of
        images per class; a Hugging Face `datasets.Dataset`. An image is a PIL image, uint8
        (H, W, 3) or a uint8 tensor (3, H, W).
    """
    if isinstance(data, Examples):
        return dataclasses.replace(data, seed=seed)
    if isinstance(data, (str, Path)):
        if not Path(data).is_dir():
            raise ValueError(f"there is no folder {data}")
        folder = open_folder(Path(data))
        items = Files(folder.files, folder.labels.tolist())
        return Examples(items, str(data), folder.class_names, seed=seed)
    if is_pair(data):
        images, targets = data
        if len(images) and isinstance(images[0], (str, Path)):
            return Examples(Files(images, targets), "files", seed=seed)
        return Examples(Pairs(images, targets), "arrays", seed=seed)
    if isinstance(data, Mapping):
        raise TypeError(
            f"{type(data).__name__} holds several data sets: give one of them, such as "
            f"data[{next(iter(data), 'train')!r}]"
        )
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise TypeError(
            "data is a Dataset with a length, a pair (images, targets), a folder or a Hugging Face "
            f"data set, not {type(data).__name__}"
        )
    if not len(data):
        raise ValueError(f"{type(data).__name__} has no examples")
    return Examples(data, type(data).__name__, _class_names(data, columns[1]), columns, seed=seed)


def is_pair(data: Any) -> bool:
    """Return whether this is (images, targets); a list may also be one of two examples."""
    if isinstance(data, list) and len(data) == 2:
        return not isinstance(data[0], (tuple, Mapping))
    return isinstance(data, tuple) and len(data) == 2


def _class_names(data: Any, column: str) -> tuple[str, ...]:
    """Return the names that torchvision's and Hugging Face's data sets know."""
    features = getattr(data, "features", None)
    names = getattr(data, "classes", None)
    if isinstance(features, Mapping) and column in features:
        names = getattr(features[column], "names", None)
    return tuple(map(str, names)) if isinstance(names, (list, tuple)) else ()


def to_pixels(image: Any) -> np.ndarray:
    """Return an image as uint8 (H, W, 3); grey ones have their channel repeated."""
    if isinstance(image, Image.Image):
        return np.array(to_rgb(image))
    if isinstance(image, torch.Tensor):
        pixels = image.movedim(0, -1).numpy() if image.ndim == 3 else image.numpy()
    else:
        pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        kind = "a tensor (3, H, W)" if isinstance(image, torch.Tensor) else "an array (H, W, 3)"
        raise ValueError(
            f"an image is a PIL image or {kind} of uint8, before any normalisation, "
            f"not {pixels.dtype} of the shape {tuple(np.shape(image))}"
        )
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def one_size(examples: Examples) -> tuple[int, int] | None:
    """Return the (height, width) of the images, judged by a few; None if they differ."""
    chosen = np.linspace(0, len(examples) - 1, min(LOOKED_AT, len(examples))).astype(int)
    sizes = {image.shape[:2] for image, _ in examples.look(chosen)}
    return sizes.pop() if len(sizes) == 1 else None


def collate(targets: Sequence[Any]) -> Any:
    """Collate targets as torch's DataLoader does; float64, Python's, becomes torch's default."""

    def in_default_precision(leaf: Any) -> Any:
        is_double = isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64
        return leaf.to(torch.get_default_dtype()) if is_double else leaf

    try:
        batch = default_collate(list(targets))
    except (TypeError, RuntimeError, KeyError) as error:
        raise ValueError(
            f"the targets do not collate to a batch ({error}): return numbers or arrays of one "
            "shape, with boxes and labels padded (label -1)"
        ) from None
    return tree_map(in_default_precision, batch)


def target_checksum(target: Any, checksum: int) -> int:
    """Return the checksum continued by a target."""
    for leaf in tree_leaves(target):
        if isinstance(leaf, (torch.Tensor, np.ndarray)):
            checksum = checksum_of(np.asarray(leaf), checksum)
        else:
            checksum = zlib.crc32(repr(leaf).encode(), checksum)
    return checksum


def _scaled(
    size: tuple[int, int] | None, shortest: int | None, epoch: int, samples: Any, pairs: list[Any]
) -> list[tuple[np.ndarray, Any]]:
    return [(scaled(image, size, shortest), target) for image, target in pairs]


def scaled(image: np.ndarray, size: tuple[int, int] | None, shortest: int | None) -> np.ndarray:
    """Return an image at `size`, or with a shorter side of at most `shortest` pixels."""
    if size is not None:
        return resized(image, size)
    if shortest is not None and min(image.shape[:2]) > shortest:
        factor = shortest / min(image.shape[:2])
        height, width = (max(shortest, round(side * factor)) for side in image.shape[:2])
        return resized(image, (height, width))
    return image
