"""The DALI graph for images with boxes, one definition for CPU and GPU.

It touches pixels only: boxes come from the host as they are in the end. Files are read in the
host's order and not by `fn.readers.coco`, for the reason given in `graph.py`.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from nvidia.dali import fn, types
from PIL import Image

from ddas_gpu.data.coco import Annotated, read_images
from ddas_gpu.pipelines.detection_feed import TARGETS, DetectionFeed
from ddas_gpu.pipelines.graph import DTYPES, given_by_host, under_policy


def define(feed: DetectionFeed, gpu: bool) -> tuple[Any, ...]:
    """The outputs, as `DetectionBatch` names them."""
    given, recipe = given_by_host(feed), feed.recipe
    encoded = fn.io.file.read(given["paths"])
    encoded = fn.python_function(
        encoded,
        fn.peek_image_shape(encoded, adjust_orientation=False),
        given["ids"],
        function=AsAnnotated(feed.images, feed.problems),
        batch_processing=True,
    )
    images = fn.decoders.image(
        encoded,
        output_type=types.RGB,
        adjust_orientation=False,
        device="mixed" if gpu else "cpu",
    )
    images = fn.resize(images, size=given["scaled"])
    images = under_policy(images, feed, gpu)
    images = fn.crop_mirror_normalize(
        images,
        # A crop larger than the image pads it, after normalising, in the same pass.
        crop_h=given["canvas"][0],
        crop_w=given["canvas"][1],
        crop_pos_x=0.0,
        crop_pos_y=0.0,
        out_of_bounds_policy="pad",
        mean=list(recipe.mean),
        std=list(recipe.deviation),
        dtype=DTYPES[recipe.dtype],
        output_layout=recipe.layout.removeprefix("N"),
    )
    return images, *(given[name] for name in TARGETS)


class AsAnnotated:
    """Sees to it that images have the size that their boxes are given in.

    Files are decoded as they are stored. The few that have another size then, because they were
    annotated as the camera was held, are read as `Annotated` reads them and handed on unencoded.
    """

    def __init__(self, images: Any, problems: list[Exception]) -> None:
        self.images, self.problems = images, problems

    def __call__(
        self, encoded: list[np.ndarray], shapes: list[np.ndarray], ids: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Never raises, but notes the problem; see `BaseFeed`."""
        chosen = [self.images[int(i)] for i in ids]
        odd = [i for i, image in enumerate(chosen) if not _fits(image, shapes[i])]
        encoded = list(encoded)
        try:
            for i, image in zip(odd, read_images([chosen[i] for i in odd]), strict=True):
                encoded[i] = bitmap(image)
        except Exception as problem:
            self.problems.append(problem)
        return encoded


def _fits(image: Annotated, shape: np.ndarray) -> bool:
    return (image.height, image.width) == tuple(shape[:2])


def bitmap(image: np.ndarray) -> np.ndarray:
    """uint8 (H, W, 3) as a file that costs nothing to decode."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "bmp")
    return np.frombuffer(file.getbuffer(), np.uint8)
