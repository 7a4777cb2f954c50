"""Finding the images that cannot be read, before a training fails on them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ddas_gpu.data.dali_check import find_dali_problem
from ddas_gpu.data.decoding import DAMAGED, open_image, upright, words
from ddas_gpu.data.folder import open_folder
from ddas_gpu.data.sources import ImageFiles
from ddas_gpu.errors import printable

MOST_NAMED = 10
ORIENTATION = 0x0112  # EXIF: from FIRST_ON_ITS_SIDE on, height and width change places
FIRST_ON_ITS_SIDE = 5


@dataclass(frozen=True)
class BadImage:
    """A file that cannot be decoded, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return printable(f"{self.path} ({self.reason})")


def scan_images(
    root: str | Path, *, threads: int | None = None, progress: bool | None = None
) -> list[BadImage]:
    """Return the unreadable images under `root`, a folder with one folder of images per class.

    progress: a bar on stderr; by default only if that is a terminal.
    """
    return scan_files(open_root(Path(root)).files, threads=threads, progress=progress)


def open_root(root: Path) -> ImageFiles:
    """Open the images to scan."""
    if not root.is_dir():
        raise ValueError(f"there is no folder {root}")
    return open_folder(root)


def scan_files(
    files: Sequence[Path], *, threads: int | None = None, progress: bool | None = None
) -> list[BadImage]:
    """Return the unreadable ones of these files, in their order."""
    from tqdm import tqdm

    hidden = not (sys.stderr.isatty() if progress is None else progress)
    with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
        problems: Iterable[str | None] = pool.map(find_problem, files)
        problems = tqdm(problems, "scan", len(files), unit="image", disable=hidden)
        try:
            return [BadImage(f, p) for f, p in zip(files, problems, strict=True) if p is not None]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # on Ctrl-C, do not scan the rest


def find_problem(path: Path) -> str | None:
    """Return why Pillow or DALI cannot decode the image to the last row; None if both can.

    Of a JPEG, DALI reads only the header: there the two differ, and decoding takes long. Other
    images must look the same to both.
    """
    try:
        with open_image(path) as image:
            if image.format != "JPEG":
                return find_dali_problem(path, pixels=np.asarray(upright(image)))
            size = image.size[::-1]
            if image.getexif().get(ORIENTATION, 1) >= FIRST_ON_ITS_SIDE:
                size = size[::-1]
            # At an eighth of the size every byte of a JPEG is still read, in half the time.
            image.draft("RGB", (max(1, image.width // 8), max(1, image.height // 8)))
            image.load()
            return find_dali_problem(path, size=size)
    except FileNotFoundError:
        return "the file is gone"
    except DAMAGED as error:
        return words(error)


def describe(bad: Sequence[BadImage]) -> str:
    """Return the number of bad images and the names of the first of them."""
    named = ", ".join(map(str, bad[:MOST_NAMED]))
    more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
    return f"{len(bad)} unreadable image{'s' * (len(bad) > 1)}: {named}{more}"
