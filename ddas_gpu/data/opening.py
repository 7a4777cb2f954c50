"""Opening what a user names: a folder, record files, arrays, an opened source."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from ddas_gpu.data.coco import Annotated, Coco, open_coco
from ddas_gpu.data.folder import LAYOUT, open_folder
from ddas_gpu.data.scanning import NOT_IN_DALI, BadImage, describe, scan_files
from ddas_gpu.data.sources import ImageArrays, ImageFiles, Labelled, Records

Images = Labelled | Records

ON_BAD_FILES = (None, "skip", "stop")
TARS = frozenset((".tar",))
TFRECORDS = frozenset((".tfrecord", ".tfrecords"))


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

    root: a folder with one folder of images per class; one or more .tar (WebDataset) or .tfrecord
        files, or a folder of them; a pair of arrays (images, labels); or an opened source.
    on_bad_files: None trusts the files; "skip" and "stop" look through all image files first and
        go on without the unreadable ones, with a warning that names them, or raise a ValueError.
    """
    if on_bad_files not in ON_BAD_FILES:
        raise ValueError(f"on_bad_files is one of {ON_BAD_FILES}, not {on_bad_files!r}")
    if isinstance(root, (str, Path)):
        images = _open_path(Path(root))
        return readable(images, on_bad_files) if isinstance(images, ImageFiles) else images
    if hasattr(root, "files") and hasattr(root, "labels"):
        names = tuple(getattr(root, "class_names", ()))
        return readable(ImageFiles(root.files, np.asarray(root.labels), names), on_bad_files)
    if isinstance(root, ImageArrays):
        return root
    if hasattr(root, "images") and hasattr(root, "labels"):
        root = (root.images, root.labels)
    if isinstance(root, (tuple, list)) and root:
        if all(isinstance(file, (str, Path)) for file in root):
            return _open_records([Path(file) for file in root])
        if len(root) == 2:
            pixels, labels = map(np.asarray, root)
            return ImageArrays(pixels, labels)
    raise TypeError(
        "images come from a folder, from .tar or .tfrecord files, or as (images, labels), "
        f"not from {type(root).__name__}"
    )


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


def _open_path(root: Path) -> Images:
    if root.is_file():
        return _open_records([root])
    if not root.is_dir():
        raise ValueError(f"there is no folder or file {root}")
    records = sorted(f for f in root.iterdir() if f.suffix in TARS | TFRECORDS)
    return _open_records(records) if records else open_folder(root)


def _open_records(files: list[Path]) -> Records:
    for file in files:
        if not file.is_file():
            raise ValueError(f"there is no file {file}")
    for kind, suffixes in (("webdataset", TARS), ("tfrecord", TFRECORDS)):
        if all(file.suffix in suffixes for file in files):
            return Records(files, kind)
    raise ValueError(f"neither .tar nor .tfrecord files alone: {', '.join(map(str, files))}")


def readable(images: FilesT, on_bad_files: str | None) -> FilesT:
    """Return the source without the files that cannot be read, or raise a ValueError.

    With None only the names are looked at: formats that DALI does not read are refused.
    """
    if on_bad_files is not None:
        bad = scan_files(images.files)
    else:
        foreign = tuple(f".{name.lower()}" for name in NOT_IN_DALI)
        named_so = (file for file in images.files if file.suffix.lower() in foreign)
        bad = [BadImage(file, "DALI does not read this format") for file in named_so]
    if not bad:
        return images
    if on_bad_files != "skip":
        raise ValueError(
            f"{describe(bad)}; replace such files, or leave them out with on_bad_files='skip'"
        )
    warnings.warn(f"going on without {describe(bad)}", RuntimeWarning, stacklevel=5)
    left_out = {image.path for image in bad}
    keep = [i for i, file in enumerate(images.files) if file not in left_out]
    if not keep:
        raise ValueError(f"nothing is left to read: {describe(bad)}")
    return images.subset(np.array(keep))
