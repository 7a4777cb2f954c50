"""What the op bank must return: Pillow, one image and one op at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ddas_gpu.ops.box_policies import BoxStep
from ddas_gpu.ops.declare import CUTOUT
from ddas_gpu.ops.records import numbers_of, steps_of
from ddas_gpu.ops.table import OPS, Argument, Op, PixelScale
from ddas_gpu.space import SearchSpace
from ddas_gpu.streams import draw

LEVELS = range(31)


def with_pillow(
    image: np.ndarray,
    op: Op,
    argument: Argument,
    centre: Sequence[int] | None = None,
    fill: int = 0,
) -> np.ndarray:
    arguments = [] if argument is None else [argument]
    if op.centred:
        arguments.append(tuple(int(v) for v in centre))
    filling = {"fill": fill} if op.fills else {}
    return np.asarray(op.pillow(Image.fromarray(image), *arguments, **filling))


def apply_op(images: Sequence[np.ndarray], op: Op, argument: Argument, seed: int = 0) -> list:
    draws = draw(seed, np.arange(len(images)), 1)
    return [
        with_pillow(image, op, argument, draws.centre(*image.shape[:2])[i, 0])
        for i, image in enumerate(images)
    ]


def augment(
    images: Sequence[np.ndarray], policies: np.ndarray, space: SearchSpace, seed: int
) -> list[np.ndarray]:
    """`policies` has a row for each image; -1 does nothing."""
    steps, results = steps_of(space), []
    draws = draw(seed, np.arange(len(images)), policies.shape[1])
    for i, image in enumerate(images):
        for stage, choice in enumerate(policies[i]):
            if choice >= 0:
                op, argument = OPS[steps[choice][0]], steps[choice][1]
                if op.signed and draws.negative[i, stage]:
                    argument = -argument
                centre = draws.centre(*image.shape[:2])[i, stage]
                image = with_pillow(image, op, argument, centre, space.fill)
        results.append(image)
    return results


def run_steps(image: np.ndarray, steps: Sequence[BoxStep], fill: int) -> np.ndarray:
    """The steps of `plan_boxes` for one image."""
    picture = Image.fromarray(np.asarray(image))
    for op, argument, position, region in steps:
        left, top, width, height = region or (0, 0, *picture.size)
        part = picture.crop((left, top, left + width, top + height))
        picture.paste(_apply_step(op, part, argument, position, fill), (left, top))
    return np.array(picture)


def _apply_step(
    op: Op, part: Image.Image, argument: Argument, position: np.ndarray, fill: int
) -> Image.Image:
    width, height = part.size
    if op.primitive is CUTOUT:
        cut_width, cut_height = numbers_of(op, argument, height, width).ints
        left = (int(position[0]) * width >> 32) - cut_width // 2
        top = (int(position[1]) * height >> 32) - cut_height // 2
        if cut_width and cut_height:  # Pillow refuses an empty box
            part.paste((fill,) * 3, (left, top, left + cut_width, top + cut_height))
        return part
    arguments = () if argument is None else (argument,)
    return op.pillow(part, *arguments, **({"fill": fill} if op.fills else {}))


def arguments_of(op: Op, scale: PixelScale = PixelScale()) -> list[Argument]:
    """The distinct arguments at all levels, with both signs."""
    if op.law is None:
        return [None]
    plain = [op.law(level, scale) for level in LEVELS]
    return list(dict.fromkeys([*plain, *([-v for v in plain] if op.signed else [])]))


def patterns(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Images that are hard on ops: noise, a dark and a light one, constants, two values, a ramp."""
    rng = np.random.default_rng((seed, height, width))
    shape = (height, width, 3)
    ramp = np.linspace(0, 255, height * width * 3).astype(np.uint8).reshape(shape)
    two = np.where(rng.random(shape) < 0.5, 17, 201)
    lone = np.full(shape, 90)
    lone[height // 2, width // 2] = (0, 91, 255)
    return np.stack(
        [
            rng.integers(0, 256, shape),
            rng.integers(40, 70, shape),
            rng.integers(250, 256, shape),
            np.zeros(shape),
            np.full(shape, 255),
            two,
            lone,
            ramp,
            ramp[::-1, ::-1],
        ]
    ).astype(np.uint8)


def is_refused(op: Op, images: Any, run: Callable[..., object], *more: Argument) -> bool:
    """Whether the op needs square images and these are not; if so, `run` must say it."""
    if not op.square or all(image.shape[0] == image.shape[1] for image in images):
        return False
    with pytest.raises(ValueError, match=f"{op.name} needs square images, not "):
        run(images, op.name, *more)
    return True


def first_difference(got: np.ndarray, want: np.ndarray) -> str:
    """Where two images differ, for the message of a failed test."""
    places = np.argwhere(got != want)
    return f"{len(places)} bytes differ, first at {tuple(places[0])}" if len(places) else "equal"


def each_op() -> Iterator[Op]:
    yield from OPS.values()
