"""Finding the images that cannot be read, before a training fails on them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddas_gpu.data.decoding import DAMAGED, open_image, upright, words
from ddas_gpu.data.folder import open_folder
from ddas_gpu.data.sources import ImageFiles
from ddas_gpu.errors import printable

MOST_NAMED = 10
ORIENTATION = 0x0112  # EXIF: from FIRST_ON_ITS_SIDE on, height and width change places
FIRST_ON_ITS_SIDE = 5
MOST_APART = 2.0  # levels on average: the two round 16 bits and YCbCr differently
MOST_COMPARED = 1 << 20  # values

_own = threading.local()  # {decode whole images: a pipeline of this thread}


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


def find_dali_problem(
    path: Path, size: tuple[int, int] | None = None, pixels: np.ndarray | None = None
) -> str | None:
    """Return why DALI cannot decode an image as Pillow has decoded it; None if it can.

    size: (height, width) that the header must say; or pixels: uint8 (H, W, 3), to compare.
    """
    try:
        pipeline = _pipeline(whole := pixels is not None)
    except ImportError:  # then Pillow decodes
        return None
    try:
        pipeline.feed_input("encoded", [np.fromfile(path, np.uint8)])
        (found,) = pipeline.run()
    except RuntimeError as error:
        del _own.pipelines[whole]  # it does not run again after an error
        reason = str(error).partition("encountered:")[2].strip().partition("\n")[0]
        return f"DALI cannot decode it ({reason or 'no reason given'}): save it as PNG of 8 bits"
    other = np.array(found.at(0))
    if pixels is None:
        same_size = tuple(other[:2]) == size
    else:
        same_size = other.shape == pixels.shape
    if not same_size:
        return "DALI and Pillow decode it in different sizes"
    if pixels is not None and _apart(pixels, other) > MOST_APART:
        return "DALI and Pillow decode it differently: save it as PNG of 8 bits"
    return None


def _apart(pixels: np.ndarray, other: np.ndarray) -> float:
    """Return the mean difference in levels, of large images at every few rows."""
    every = max(1, pixels.size // MOST_COMPARED)
    return float(np.abs(pixels[::every].astype(np.int16) - other[::every]).mean())


def _pipeline(whole: bool) -> Any:
    from nvidia.dali import Pipeline, fn, types

    pipelines = _own.__dict__.setdefault("pipelines", {})
    if whole not in pipelines:
        pipeline = Pipeline(1, 1, None, prefetch_queue_depth=1, exec_dynamic=True)
        with pipeline:
            encoded = fn.external_source(name="encoded", batch=True)
            decoded = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
            pipeline.set_outputs(decoded if whole else fn.peek_image_shape(encoded))
        pipeline.build()
        pipelines[whole] = pipeline
    return pipelines[whole]


def describe(bad: Sequence[BadImage]) -> str:
    """Return the number of bad images and the names of the first of them."""
    named = ", ".join(map(str, bad[:MOST_NAMED]))
    more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
    return f"{len(bad)} unreadable image{'s' * (len(bad) > 1)}: {named}{more}"
