"""Opening what a user names: a folder, record files, arrays, an opened source."""

from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from ddas_gpu.data.coco import Annotated, Coco, open_coco
from ddas_gpu.data.folder import LAYOUT, open_folder
from ddas_gpu.data.scanning import BadImage, describe, scan_files
from ddas_gpu.data.sources import (
    FOREIGN_SUFFIXES,
    ImageArrays,
    ImageFiles,
    Labelled,
    Records,
    is_hidden,
)

Images = Labelled | Records

ON_BAD_FILES = (None, "skip", "stop")
TARS = frozenset((".tar",))
TFRECORDS = frozenset((".tfrecord", ".tfrecords"))
URL = re.compile(r"\w[\w+.-]+:/")  # Path makes one slash of two; C:/ is a drive
PART_OF = re.compile(r"-\d{5}-of-\d{5}$")  # as TensorFlow's scripts name the parts of a set


class _Files(Protocol):
    @property
    def files(self) -> Sequence[Path]: ...
    def subset(self: FilesT, indices: np.ndarray) -> FilesT: ...


FilesT = TypeVar("FilesT", bound=_Files)


def find_root(name: str, root: Path | None, layout: str = LAYOUT) -> Path:
    """Return `root` if given, else $DDAS_DATA/NAME, else data/NAME.

    layout: what the folder must hold, for the message.
    """
    if root is not None:
        tried = [root]
    elif name == "folder":
        raise ValueError(f"--data folder needs --root DIR, a folder with {layout}")
    else:
        base = os.environ.get("DDAS_DATA")
        tried = [*([Path(base) / name] if base else []), Path("data") / name]
    for folder in tried:
        if folder.is_dir():
            return folder
    looked = " or ".join(str(folder) for folder in tried)
    raise ValueError(f"{name} not found: no folder {looked}; it must hold {layout}")


def open_images(root: Any, on_bad_files: str | None = None) -> Images:
    """Open images with labels.

    root: a folder with one folder of images per class; one or more .tar (WebDataset) or TFRecord
        files, a folder of them, or a pattern such as train-{0000..0012}.tar or train-*.tar; a pair
        (images, labels) of arrays or (paths, labels) of image files; a torchvision data set such
        as ImageFolder or CIFAR10, or a Subset of one; or an opened source.
    on_bad_files: None trusts the files; "skip" and "stop" look through all image files first and
        go on without the unreadable ones, with a warning that names them, or raise a ValueError.
    """
    if on_bad_files not in ON_BAD_FILES:
        raise ValueError(f"on_bad_files is one of {ON_BAD_FILES}, not {on_bad_files!r}")
    images = _open(root)
    return readable(images, on_bad_files) if isinstance(images, ImageFiles) else images


def _open(root: Any) -> Images:
    if isinstance(root, (str, Path)):
        return _open_path(root)
    if isinstance(root, (ImageFiles, ImageArrays, Records)):
        return root
    if isinstance(root, (tuple, list)) and root:
        if all(isinstance(file, (str, Path)) for file in root):
            return _open_records([local(file) for file in root])
        if len(root) == 2:
            return _open_pair(*root)
    found = open_torch_dataset(root)
    if found is not None:
        return found
    raise TypeError(
        "images come from a folder, from .tar or .tfrecord files, as (images, labels) or "
        "(paths, labels), or from a torchvision data set such as ImageFolder, "
        f"not from {type(root).__name__}; for a Dataset of your own there is PolicyTransform"
    )


def _open_pair(images: Any, labels: Any) -> ImageFiles | ImageArrays:
    labels, count = np.asarray(labels), len(images)
    if labels.shape != (count,) or (count and labels.dtype.kind not in "biu"):
        raise ValueError(
            f"{count} images need {count} whole numbers as labels, not {labels.dtype} of the shape "
            f"{labels.shape}"
        )
    labels = labels.astype(np.int64)
    if count and all(isinstance(image, (str, Path)) for image in images):
        return ImageFiles([local(image) for image in images], labels)
    return ImageArrays(np.asarray(images), labels)


def open_torch_dataset(dataset: Any) -> ImageFiles | ImageArrays | None:
    """Open what torchvision's data sets hold; None if it is not one of them.

    ImageFolder and its kin have `samples`, CIFAR10 and its kin `data` and `targets`; a Subset has
    `dataset` and `indices`. Their transforms are not applied, nor is a `__getitem__` that a user
    has put in place of torchvision's.
    """
    if hasattr(dataset, "dataset") and hasattr(dataset, "indices"):
        whole = open_torch_dataset(dataset.dataset)
        return None if whole is None else whole.subset(np.asarray(dataset.indices, np.int64))
    names = tuple(map(str, getattr(dataset, "classes", ())))
    found: ImageFiles | ImageArrays
    if hasattr(dataset, "samples") and len(dataset.samples):
        paths, labels = zip(*dataset.samples, strict=True)
        found = ImageFiles([Path(path) for path in paths], np.array(labels, np.int64), names)
    elif isinstance(getattr(dataset, "data", None), np.ndarray) and hasattr(dataset, "targets"):
        found = ImageArrays(dataset.data, np.array(dataset.targets, np.int64), names)
    else:
        return None
    name = type(dataset).__name__
    if any(getattr(dataset, one, None) is not None for one in ("transform", "target_transform")):
        warnings.warn(
            f"the transforms of {name} are not applied: crop, flip, policy and normalisation are "
            "settings of the loader",
            RuntimeWarning,
            stacklevel=5,
        )
    if not _reads_as_torchvision(dataset):
        warnings.warn(
            f"the __getitem__ of {name} is not called: the loader reads its images and labels by "
            "itself; if it changes them, use PolicyTransform in it, with a DataLoader",
            RuntimeWarning,
            stacklevel=5,
        )
    return found


def _reads_as_torchvision(dataset: Any) -> bool:
    """Return whether items are read by torchvision's own code, which the loader stands in for."""
    getter = getattr(type(dataset), "__getitem__", None)
    return getter is None or getattr(getter, "__module__", "").startswith("torchvision.")


def open_boxes(source: Any, split: str, keep_empty: bool) -> Coco:
    """Open images with boxes: a folder in COCO's layout, a `Coco`, or a sequence of `Annotated`."""
    if isinstance(source, (str, Path)):
        source = open_coco(Path(source), split)
    images = source if isinstance(source, Coco) else _annotated(source)
    if not keep_empty:
        images = images.without_empty()
    if not len(images):
        raise ValueError(f"no images{'' if keep_empty else ' with boxes'} to read")
    return images


def _annotated(source: Any) -> Coco:
    if not isinstance(source, Sequence) or not all(isinstance(i, Annotated) for i in source):
        raise TypeError(
            "images with boxes come from a folder in COCO's layout, a Coco, or a sequence of "
            f"Annotated, not from {type(source).__name__}"
        )
    return Coco(source)


def local(path: str | Path) -> Path:
    """Return a path, or raise a ValueError for a URL."""
    if URL.match(str(path)):
        raise ValueError(f"{path} is a URL: only local files are read, so download it before")
    return Path(path)


def _open_path(root: str | Path) -> Images:
    path = local(root)
    if path.is_file():
        return _open_records([path])
    if path.is_dir():
        records = sorted(file for file in path.iterdir() if _kind(file) and not is_hidden(file))
        return _open_records(records) if records else open_folder(path)
    if not set("{*?[") & set(str(root)):
        raise ValueError(f"there is no folder or file {root}")
    files = [file for pattern in expand_braces(str(root)) for file in _matching(pattern)]
    if not files:
        raise ValueError(f"no file matches {root}")
    return _open_records(files)


def expand_braces(pattern: str) -> list[str]:
    """Return what a shell makes of {0000..0012} and {a,b}.

    >>> expand_braces("train-{08..10}.tar")
    ['train-08.tar', 'train-09.tar', 'train-10.tar']
    """
    found = re.search(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}", pattern)
    if found is None:
        return [pattern]
    first, last, words = found.groups()
    if words is None:
        digits = len(first) if first.startswith("0") else 0
        parts = [f"{number:0{digits}}" for number in range(int(first), int(last) + 1)]
    else:
        parts = words.split(",")
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [each for part in parts for each in expand_braces(f"{before}{part}{after}")]


def _matching(pattern: str) -> list[Path]:
    """Return the files of a pattern with * ? [ ], sorted; without any, the path itself."""
    if set("*?[") & set(pattern):
        return [Path(file) for file in sorted(glob.glob(pattern, recursive=True))]
    return [Path(pattern)]


def _kind(file: Path) -> str | None:
    """Return the kind of a file of records: by its ending, or a name as in "00003-of-01024"."""
    if file.suffix in TARS:
        return "webdataset"
    if file.suffix in TFRECORDS or PART_OF.search(file.name):
        return "tfrecord"
    return None


def _open_records(files: list[Path]) -> Records:
    for file in files:
        if not file.is_file():
            raise ValueError(f"there is no file {file}")
    kinds = {_kind(file) for file in files}
    if len(kinds) > 1 or None in kinds:
        raise ValueError(f"neither .tar nor .tfrecord files alone: {', '.join(map(str, files))}")
    return Records(files, str(*kinds))


def readable(images: FilesT, on_bad_files: str | None) -> FilesT:
    """Return the source without the files that cannot be read, or raise a ValueError.

    With None only the names are looked at: formats that DALI does not read are refused.
    """
    return all_readable((images,), on_bad_files)[0]


def checked(sets: Sequence[Any], bad_files: str) -> list[Any]:
    """Return sets of images as --bad-files says; those that are not in files stay as they are."""
    if not all(hasattr(images, "files") for images in sets):
        return list(sets)
    return all_readable(sets, None if bad_files == "trust" else bad_files)


def all_readable(sets: Sequence[FilesT], on_bad_files: str | None) -> list[FilesT]:
    """Return several sources as `readable` does, all bad files named in one message."""
    files = [file for images in sets for file in images.files]
    if on_bad_files is not None:
        bad = scan_files(files)
    else:
        named_so = (file for file in files if file.suffix.lower() in FOREIGN_SUFFIXES)
        bad = [BadImage(file, "DALI does not read this format") for file in named_so]
    if not bad:
        return list(sets)
    if on_bad_files != "skip":
        raise ValueError(
            f"{describe(bad)}; replace such files, or leave them out with on_bad_files='skip'; "
            "`ddas scan ROOT` lists all of them"
        )
    warnings.warn(f"going on without {describe(bad)}", RuntimeWarning, stacklevel=6)
    left_out = {image.path for image in bad}
    left = []
    for images in sets:
        keep = [i for i, file in enumerate(images.files) if file not in left_out]
        if not keep:
            raise ValueError(f"nothing is left to read: {describe(bad)}")
        left.append(images.subset(np.array(keep)))
    return left
