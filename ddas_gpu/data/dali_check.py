"""Whether DALI decodes an image that Pillow decodes: of damaged files it refuses more."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

MOST_APART = 2.0  # levels on average: the two round 16 bits and YCbCr differently
MOST_COMPARED = 1 << 20  # values

_own = threading.local()  # {decode whole images: a pipeline of this thread}


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
