"""The DALI graphs, one definition for CPU and GPU.

On a GPU files are decoded there ("mixed") and everything after that runs there; on the CPU DALI
needs no driver. Names of the host's data are those of `Feed.names`.

Image files are read by `fn.io.file.read`, in the order that the host gives, and not by
`fn.readers.file`: a reader keeps an order of its own, shuffles within a window only, and cannot be
sent to an epoch or a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from nvidia.dali import fn, types

from ddas_gpu.pipelines import draws
from ddas_gpu.pipelines.base_feed import BaseFeed
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.images import ImageArrays, ImageFiles
from ddas_gpu.pipelines.readers import read_records
from ddas_gpu.pipelines.recipe import RESIZED_FROM, Recipe

DTYPES = {"float32": types.FLOAT, "float16": types.FLOAT16}


def define(feed: Feed, gpu: bool, reader: dict[str, Any]) -> tuple[Any, Any]:
    """Images and labels. `reader` has the options of a reader of records."""
    given = given_by_host(feed)
    if isinstance(feed.images, ImageArrays):
        images, labels = given["images"], given["labels"]
        images = images.gpu() if gpu else images
    else:
        if isinstance(feed.images, ImageFiles):
            encoded, labels = fn.io.file.read(given["paths"]), given["labels"]
        else:
            encoded, labels = read_records(feed.images, problems=feed.problems, **reader)
        if feed.training:
            images = random_part(encoded, given, feed.recipe, gpu)
        else:
            images = middle_part(encoded, feed.recipe, gpu)
    images = under_policy(images, feed, gpu)
    return finish(images, given.get("holes"), feed.recipe), labels


def under_policy(images: Any, feed: BaseFeed, gpu: bool) -> Any:
    """The policy node, if there is a schedule."""
    if feed.node is None:
        return images
    return fn.python_function(
        images,
        function=feed.node,
        batch_processing=True,
        output_layouts="HWC",
        device="gpu" if gpu else "cpu",
    )


def given_by_host(feed: BaseFeed) -> dict[str, Any]:
    if not feed.names:
        return {}
    nodes = fn.external_source(
        source=feed,
        num_outputs=len(feed.names),
        batch=True,
        batch_info=True,
        layout=["HWC" if name == "images" else "" for name in feed.names],
    )
    return dict(zip(feed.names, nodes, strict=True))


def random_part(encoded: Any, given: dict[str, Any], recipe: Recipe, gpu: bool) -> Any:
    """Crop and flip, the part of the standard transform before the policy."""
    device = "mixed" if gpu else "cpu"
    if recipe.crop == "resized":
        # Only the random part is decoded, hence its place must be known before.
        corner, shape = fn.python_function(
            fn.peek_image_shape(encoded),
            given["crops"],
            function=_boxes,
            num_outputs=2,
            batch_processing=True,
        )
        images = fn.decoders.image_slice(
            encoded,
            corner,
            shape,
            axis_names="HW",
            normalized_anchor=False,
            normalized_shape=False,
            output_type=types.RGB,
            device=device,
        )
        height, width = (float(side) for side in recipe.size)
        if recipe.flip:
            width *= 1 - 2 * given["flips"]  # a negative width mirrors, at no cost
        return fn.resize(images, resize_y=height, resize_x=width)
    images = fn.decoders.image(encoded, output_type=types.RGB, device=device)
    images = fn.resize(images, size=recipe.size)
    images = fn.slice(
        images,
        given["shifts"],
        types.Constant(np.array(recipe.size, np.int32)),
        axis_names="HW",
        normalized_anchor=False,
        normalized_shape=False,
        out_of_bounds_policy="pad",
    )
    return fn.flip(images, horizontal=given["flips"]) if recipe.flip else images


def _boxes(shapes: list[np.ndarray], crops: list[np.ndarray]) -> tuple[list, list]:
    corners, sizes = draws.boxes(np.stack(crops), np.stack(shapes)[:, :2])
    return list(corners), list(sizes)


def middle_part(encoded: Any, recipe: Recipe, gpu: bool) -> Any:
    """What evaluation sees: the middle of the image, or all of it where training pads."""
    device = "mixed" if gpu else "cpu"
    images = fn.decoders.image(encoded, output_type=types.RGB, device=device)
    if recipe.crop == "pad":
        return fn.resize(images, size=recipe.size)
    around = [round(side * RESIZED_FROM) for side in recipe.size]
    images = fn.resize(images, size=around, mode="not_smaller")
    return fn.crop(images, crop=recipe.size)


def finish(images: Any, holes: Any, recipe: Recipe) -> Any:
    """Normalise and Cutout, the part of the standard transform after the policy."""
    images = fn.crop_mirror_normalize(
        images,
        mean=list(recipe.mean),
        std=list(recipe.deviation),
        dtype=DTYPES[recipe.dtype],
        output_layout=recipe.layout.removeprefix("N"),
    )
    if holes is None:
        return images
    # The holes have the mean colour, which is 0 by now.
    side = [float(recipe.cutout)] * 2
    return fn.erase(images, anchor=holes, shape=side, axis_names="HW", fill_value=0.0)
