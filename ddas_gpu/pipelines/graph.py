"""The DALI graphs, one definition for CPU and GPU.

On a GPU files are decoded there ("mixed") and everything after that runs there; on the CPU DALI
needs no driver. Names of the host's data are those of `Feed.names`.

Image files are read by `fn.io.file.read`, in the order that the host gives, and not by
`fn.readers.file` or `fn.readers.coco`: a reader keeps an order of its own, shuffles within a
window only, and cannot be sent to an epoch or a batch.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from nvidia.dali import fn, types
from PIL import Image

from ddas_gpu import streams
from ddas_gpu.data.coco import Annotated
from ddas_gpu.data.sources import ImageArrays, ImageFiles
from ddas_gpu.pipelines.box_feed import TARGETS, BoxFeed
from ddas_gpu.pipelines.feed import Feed, LabelFeed
from ddas_gpu.pipelines.pixels import RESIZED_FROM
from ddas_gpu.pipelines.policy_node import Problems
from ddas_gpu.pipelines.readers import read_records
from ddas_gpu.pipelines.transform import Output, Transform

DTYPES = {"float32": types.FLOAT, "float16": types.FLOAT16}


def define_labels(feed: LabelFeed, gpu: bool, reader: dict[str, Any]) -> tuple[Any, ...]:
    """Return images and labels, or clean images alone; on a GPU all of them there."""
    given, transform = given_by_host(feed), feed.transform
    if isinstance(feed.source, ImageArrays):
        images, labels = given["images"], given["labels"]
        images = images.gpu() if gpu else images
    else:
        if isinstance(feed.source, ImageFiles):
            encoded, labels = read_files(given["paths"]), given.get("labels")
        else:
            encoded, labels = read_records(feed.source, problems=feed.problems, **reader)
        if feed.training:
            images = random_part(encoded, given, transform, gpu)
        else:
            images = middle_part(encoded, transform, gpu)
    if feed.clean:
        return (images,)
    labels = labels.gpu() if gpu else labels
    if not feed.finished:
        return images, labels
    images = normalise(under_policy(images, feed, gpu), transform.output)
    if "holes" in given:
        # The holes have the mean colour, which is 0 by now.
        side = [float(transform.cutout)] * 2
        images = fn.erase(
            images, anchor=given["holes"], shape=side, axis_names="HW", fill_value=0.0
        )
    return images, labels


def define_boxes(feed: BoxFeed, gpu: bool) -> tuple[Any, ...]:
    """Return the outputs that `DetectionBatch` names, or clean images alone; as `define_labels`.

    The graph touches pixels only: boxes come from the host as they are in the end.
    """
    given = given_by_host(feed)
    encoded = read_files(given["paths"])
    stored = fn.peek_image_shape(encoded, adjust_orientation=False)
    encoded = fn.python_function(
        encoded,
        stored,
        given["ids"],
        function=AsAnnotated(feed.source.images, feed.problems),
        batch_processing=True,
    )
    images = decode(encoded, gpu, stored, adjust_orientation=False)
    images = fn.resize(images, size=given["scaled"])
    if feed.clean:
        return (images,)
    targets = [given[name].gpu() if gpu else given[name] for name in TARGETS]
    if not feed.finished:
        return images, *targets
    images = under_policy(images, feed, gpu)
    images = normalise(
        images,
        feed.transform.output,
        # A crop larger than the image pads it, after normalising, in the same pass.
        crop_h=given["canvas"][0],
        crop_w=given["canvas"][1],
        crop_pos_x=0.0,
        crop_pos_y=0.0,
        out_of_bounds_policy="pad",
    )
    return images, *targets


def given_by_host(feed: Feed) -> dict[str, Any]:
    """Return the nodes of what the host gives for each batch."""
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


def under_policy(images: Any, feed: Feed, gpu: bool) -> Any:
    """Add the policy node, if there is a schedule."""
    if feed.schedule is None:
        return images
    return fn.python_function(
        images,
        function=feed.make_node(feed.schedule.space),
        batch_processing=True,
        output_layouts="HWC",
        device="gpu" if gpu else "cpu",
    )


def read_files(paths: Any) -> Any:
    """Read, do not map: a mapped file that is truncated meanwhile ends the process (SIGBUS)."""
    return fn.io.file.read(paths, dont_use_mmap=True)


def without_bombs(encoded: Any, shape: Any) -> Any:
    """Empty the files whose headers announce more pixels than Pillow decodes.

    The decoder then fails as for any damaged file, before it takes the memory.
    """
    if Image.MAX_IMAGE_PIXELS is None:
        return encoded
    small = shape[0] * shape[1] <= 2 * Image.MAX_IMAGE_PIXELS
    return fn.slice(encoded, 0.0, fn.cast(small, dtype=types.FLOAT), axes=[0])


def decode(encoded: Any, gpu: bool, shape: Any = None, **options: Any) -> Any:
    """Decode to RGB; with the chroma upsampling of libjpeg-turbo's default on both devices.

    shape: that of the images, if it is known. Else their headers are read, 5 % of the time of
    images of 32 pixels.
    """
    return fn.decoders.image(
        without_bombs(encoded, fn.peek_image_shape(encoded) if shape is None else shape),
        output_type=types.RGB,
        jpeg_fancy_upsampling=True,
        device="mixed" if gpu else "cpu",
        **options,
    )


def random_part(encoded: Any, given: dict[str, Any], transform: Transform, gpu: bool) -> Any:
    """Crop and flip, the part of the standard transform before the policy."""
    if transform.crop == "resized":
        # Only the random part is decoded, hence its place must be known before.
        whole = fn.peek_image_shape(encoded)
        corner, shape = fn.python_function(
            whole,
            given["crops"],
            function=_boxes,
            num_outputs=2,
            batch_processing=True,
        )
        images = fn.decoders.image_slice(
            without_bombs(encoded, whole),
            corner,
            shape,
            axis_names="HW",
            normalized_anchor=False,
            normalized_shape=False,
            output_type=types.RGB,
            jpeg_fancy_upsampling=True,
            device="mixed" if gpu else "cpu",
        )
        height, width = (float(side) for side in transform.size)
        if transform.flip:
            width *= 1 - 2 * given["flips"]  # a negative width mirrors, at no cost
        return fn.resize(images, resize_y=height, resize_x=width)
    images = fn.resize(decode(encoded, gpu), size=transform.size)
    images = fn.slice(
        images,
        given["shifts"],
        types.Constant(np.array(transform.size, np.int32)),
        axis_names="HW",
        normalized_anchor=False,
        normalized_shape=False,
        out_of_bounds_policy="pad",
    )
    return fn.flip(images, horizontal=given["flips"]) if transform.flip else images


def _boxes(shapes: list[np.ndarray], crops: list[np.ndarray]) -> tuple[list, list]:
    corners, sizes = streams.boxes(np.stack(crops), np.stack(shapes)[:, :2])
    return list(corners), list(sizes)


def middle_part(encoded: Any, transform: Transform, gpu: bool) -> Any:
    """Return what evaluation sees: the middle of the image, or all of it where training pads."""
    images = decode(encoded, gpu)
    if transform.crop == "pad":
        return fn.resize(images, size=transform.size)
    around = [round(side * RESIZED_FROM) for side in transform.size]
    images = fn.resize(images, size=around, mode="not_smaller")
    return fn.crop(images, crop=transform.size)


def normalise(images: Any, output: Output, **crop: Any) -> Any:
    """Normalise to the model's type and layout."""
    return fn.crop_mirror_normalize(
        images,
        mean=list(output.mean),
        std=list(output.std),
        dtype=DTYPES[output.dtype],
        output_layout=output.layout.removeprefix("N"),
        **crop,
    )


class AsAnnotated:
    """Gives images the size that their boxes refer to.

    Files are decoded as they are stored. The few that have another size then, because they were
    annotated as the camera was held, are read as `Annotated` reads them and passed on unencoded.
    """

    def __init__(self, images: Sequence[Annotated], problems: Problems) -> None:
        self.images, self.problems = images, problems

    def __call__(
        self, encoded: list[np.ndarray], shapes: list[np.ndarray], ids: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Return the files to decode; record an error instead of raising it, see `Feed`."""
        encoded = list(encoded)
        try:
            for i, (number, shape) in enumerate(zip(ids, shapes, strict=True)):
                image = self.images[int(number)]
                if (image.height, image.width) != tuple(shape[:2]):
                    encoded[i] = bitmap(image.read())
        except Exception as problem:
            self.problems.append(problem)
        return encoded


def bitmap(image: np.ndarray) -> np.ndarray:
    """Return uint8 (H, W, 3) as a file that costs nothing to decode."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "bmp")
    return np.frombuffer(file.getbuffer(), np.uint8)
