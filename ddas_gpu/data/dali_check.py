"""Whether DALI decodes an image that Pillow decodes: of damaged files it refuses more."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

_own = threading.local()  # {decode whole images: a pipeline of this thread}


def find_dali_problem(path: Path, image_format: str | None) -> str | None:
    """Return why DALI cannot decode an image that Pillow has decoded; None if it can.

    Of a JPEG only the header is read: there the two differ, and decoding takes long.
    """
    try:
        pipeline = _pipeline(whole := image_format != "JPEG")
    except ImportError:  # then Pillow decodes
        return None
    try:
        pipeline.feed_input("encoded", [np.fromfile(path, np.uint8)])
        pipeline.run()
    except RuntimeError as error:
        del _own.pipelines[whole]  # it does not run again after an error
        reason = str(error).strip().splitlines()
        return f"DALI cannot decode it: {reason[-1] if reason else 'no reason given'}"
    return None


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
