"""The policy for DALI pipelines."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from nvidia.dali import fn, math, types
from nvidia.dali.auto_aug import augmentations
from nvidia.dali.pipeline import do_not_convert

from ddas_gpu.export.parts.constants import CANDIDATES, CENTRED, DEPTH, FILL, Argument
from ddas_gpu.export.parts.schedule import Schedule


class Policy:
    """Augment uint8 HWC images in a pipeline with enable_conditionals=True.

    policy = Policy(epochs=90, steps_per_epoch=len(loader))
    images = policy(images)  # in the pipeline, on the CPU or the GPU

    Batches count the epochs. Without `steps_per_epoch` call `policy.set_epoch(epoch)` before each
    epoch: batches that are prefetched by then have the probabilities of the epoch before.
    Ranks need different seeds.
    """

    def __init__(self, epochs: int, steps_per_epoch: int | None = None, seed: int = 0) -> None:
        self.schedule, self.steps_per_epoch, self.seed = Schedule(epochs), steps_per_epoch, seed

    def set_epoch(self, epoch: int) -> None:
        self.schedule.set_epoch(epoch)

    def __call__(self, images: Any) -> Any:
        drawn = fn.external_source(source=self.draw, num_outputs=4 * DEPTH, batch=False)
        for stage in range(DEPTH):
            images = select(images, NAMES, *drawn[4 * stage : 4 * stage + 4])
        return images

    @do_not_convert
    def draw(self, sample: Any) -> tuple[np.ndarray, ...]:
        """Draw for every stage of a sample: op, argument, matrix, position."""
        place = sample.epoch_idx, sample.iteration, sample.idx_in_batch
        rng = random.Random(repr((self.seed, *place)))
        if self.steps_per_epoch is not None:
            self.set_epoch(sample.epoch_idx + sample.iteration // self.steps_per_epoch)
        ops = self.schedule.draw(rng) or [("Identity", None)] * DEPTH
        return tuple(number for op in ops for number in numbers_of(*op, rng))


NAMES = sorted({"Identity", *(op for op, _ in CANDIDATES)})


@do_not_convert
def numbers_of(op: str, argument: Argument, rng: random.Random) -> tuple[np.ndarray, ...]:
    """Return op and argument as DALI's operators need them."""
    matrix = np.eye(2, 3, dtype=np.float32)  # output pixel → input pixel
    if op in ENTRIES:
        matrix[ENTRIES[op]] = argument
    position = [rng.random(), rng.random()] if op in CENTRED else [0.0, 0.0]
    numbers = NAMES.index(op), argument or 0.0, matrix, position
    kinds = np.int32, np.float32, np.float32, np.float32
    return tuple(np.array(n, kind) for n, kind in zip(numbers, kinds, strict=True))


def select(images: Any, names: Any, code: Any, argument: Any, matrix: Any, position: Any) -> Any:
    """Apply to every image the op of its own; a binary search splits the batch by op."""
    if len(names) == 1:
        return OPERATORS[names[0]](images, argument, matrix, position)
    half = len(names) // 2
    if code < NAMES.index(names[half]):
        images = select(images, names[:half], code, argument, matrix, position)
    else:
        images = select(images, names[half:], code, argument, matrix, position)
    return images


# --- the ops: functions of (images, argument, matrix, position) -----------------------------------

ENTRIES = {"ShearX": (0, 1), "ShearY": (1, 0), "TranslateX": (0, 2), "TranslateY": (1, 2)}
SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13
BLUR = np.pad(np.zeros((3, 3), np.float32), 1, constant_values=1) / 16
ONE = np.pad(np.ones((1, 1), np.float32), 1)


def _beside(images: Any, operand: Any) -> Any:
    """Return an operand on the device of the images."""
    return operand.gpu() if images.device == "gpu" else operand


def _constant(images: Any, array: np.ndarray) -> Any:
    return types.Constant(array, device=images.device or "cpu")


def _same(images: Any, *_: Any) -> Any:
    return images


def _flip_lr(images: Any, *_: Any) -> Any:
    return fn.flip(images, horizontal=1, vertical=0)


def _flip_ud(images: Any, *_: Any) -> Any:
    return fn.flip(images, horizontal=0, vertical=1)


def _rotate90(images: Any, *_: Any) -> Any:
    turned = fn.transpose(images, perm=[1, 0, 2], transpose_layout=False, output_layout="HWC")
    return fn.flip(turned, horizontal=0, vertical=1)


def _warp(images: Any, argument: Any, matrix: Any, position: Any) -> Any:
    return fn.warp_affine(
        images, matrix=matrix, inverse_map=True, fill_value=FILL, interp_type=types.INTERP_NN
    )


def _zoom(images: Any, step: Any, matrix: Any, position: Any) -> Any:
    size = fn.cast(images.shape()[:2], dtype=types.FLOAT)
    back = fn.transforms.scale(scale=fn.stack(step, step), center=fn.stack(size[1], size[0]) / 2)
    return _warp(images, step, back, position)


def _rotate(images: Any, degrees: Any, matrix: Any, position: Any) -> Any:
    return fn.rotate(
        images, angle=degrees, keep_size=True, fill_value=FILL, interp_type=types.INTERP_NN
    )


def _auto_contrast(images: Any, *_: Any) -> Any:
    return augmentations.auto_contrast.op(images, None)


def _equalize(images: Any, *_: Any) -> Any:
    return fn.experimental.equalize(images)


def _invert(images: Any, *_: Any) -> Any:
    return augmentations.invert.op(images, None)


def _blur(images: Any, *_: Any) -> Any:
    return fn.filter(images, _constant(images, BLUR))


def _smooth(images: Any, *_: Any) -> Any:
    return fn.filter(images, _constant(images, SMOOTH))


def _posterize(images: Any, bits: Any, matrix: Any, position: Any) -> Any:
    step = _beside(images, fn.cast(math.pow(2.0, 8.0 - bits), dtype=types.INT32))
    return fn.cast(images // step * step, dtype=types.UINT8)


def _solarize(images: Any, threshold: Any, matrix: Any, position: Any) -> Any:
    return augmentations.solarize.op(images, _beside(images, fn.cast(threshold, dtype=types.INT16)))


def _solarize_add(images: Any, addition: Any, matrix: Any, position: Any) -> Any:
    dark = images < np.uint8(128)
    return fn.cast_like(math.min(images + dark * _beside(images, addition), 255.0), images)


def _color(images: Any, factor: Any, matrix: Any, position: Any) -> Any:
    return fn.saturation(images, saturation=factor)


def _contrast(images: Any, factor: Any, matrix: Any, position: Any) -> Any:
    return augmentations.contrast.op(images, factor)


def _brightness(images: Any, factor: Any, matrix: Any, position: Any) -> Any:
    return fn.brightness(images, brightness=factor)


def _lighten(images: Any, factor: Any, matrix: Any, position: Any) -> Any:
    return fn.cast_like(math.floor(255.0 + _beside(images, factor) * (images - 255.0)), images)


def _warmth(images: Any, warmth: Any, matrix: Any, position: Any) -> Any:
    gains = math.floor(fn.stack(1.0 + warmth, 1.0, 1.0 - warmth) * 128.0 + 0.5)
    warmed = math.floor((images * _beside(images, gains) + 64.0) / 128.0)
    return fn.cast_like(math.min(warmed, 255.0), images)


def _sharpness(images: Any, factor: Any, matrix: Any, position: Any) -> Any:
    kernel = types.Constant(ONE) * factor + types.Constant(SMOOTH) * (1.0 - factor)
    return fn.filter(images, _beside(images, kernel))


def _cutout(images: Any, side: Any, matrix: Any, position: Any) -> Any:
    size = fn.cast(images.shape()[:2], dtype=types.FLOAT)
    corner = math.floor(position * size) - math.floor(side / 2.0)
    return fn.erase(
        images,
        anchor=corner,
        shape=fn.stack(side, side),
        axis_names="HW",
        fill_value=FILL,
    )


OPERATORS = {
    "Identity": _same,
    "FlipLR": _flip_lr,
    "FlipUD": _flip_ud,
    "AutoContrast": _auto_contrast,
    "Equalize": _equalize,
    "Invert": _invert,
    "Blur": _blur,
    "Smooth": _smooth,
    "Rotate": _rotate,
    "Posterize": _posterize,
    "ShearX": _warp,
    "ShearY": _warp,
    "TranslateX": _warp,
    "TranslateY": _warp,
    "Solarize": _solarize,
    "SolarizeAdd": _solarize_add,
    "Color": _color,
    "Contrast": _contrast,
    "Brightness": _brightness,
    "Sharpness": _sharpness,
    "Cutout": _cutout,
    "Shrink": _zoom,
    "Enlarge": _zoom,
    "Lighten": _lighten,
    "Warmth": _warmth,
    "Rotate90": _rotate90,
}
