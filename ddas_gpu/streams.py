"""Randomness as a pure function of (seed, purpose, position).

No generator keeps state between steps: the seed and the step determine every draw. So runs are
repeatable, and a resumed run draws the same numbers as an uninterrupted one. What is drawn for a
sample (`draw`) is a hash of (seed, sample, stage). A sample is known by its place in the data set,
so what happens to it in an epoch does not depend on the batch it is in, the rank, thread or device
that asks, the prefetching, or where a run was resumed.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from enum import IntEnum, auto
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np


class Stream(IntEnum):
    """The purpose of a draw; streams are independent."""

    SPLIT = auto()
    WEIGHTS = auto()
    TRAINING_ORDER = auto()
    VALIDATION_ORDER = auto()
    CROPS = auto()
    HOLES = auto()
    POLICIES = auto()
    SIGNS = auto()
    MODEL = auto()
    EXAMPLES = auto()


def whole(name: str, value: Any, least: int = 0) -> int:
    """Return a seed, an epoch or a size as an int; raise a ValueError if it is none."""
    try:
        number = operator.index(value)  # also NumPy's
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise ValueError(f"{name} is a whole number, {least} or more, not {value!r}")
    return number


def generator(seed: int, stream: Stream, *position: int) -> np.random.Generator:
    """Return the generator for one purpose at one position, such as (epoch,) or (step,)."""
    return np.random.default_rng([seed, stream, *position])


def number(seed: int, stream: Stream, *position: int) -> int:
    """Return a 63-bit seed for libraries that have their own generators."""
    return int(generator(seed, stream, *position).integers(2**63))


# --- draws of single samples ----------------------------------------------------------------------

MOST_STAGES = 1 << 16
_MASK = (1 << 64) - 1
# The constants of splitmix64: word n is the hash of key + n · STEP.
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# Batches are small, so the time goes into converting Python ints: use 0-d arrays.
_STAGE, _SAMPLE = (np.array(n * _STEP & _MASK, np.uint64) for n in (1, MOST_STAGES))
_TIMES = [np.array(n, np.uint64) for n in (_FIRST, _SECOND)]
_SHIFTS = [np.array(n, np.uint64) for n in (30, 27, 31)]


class Draws(NamedTuple):
    """What is drawn for the ops; the arrays start with the shape (samples, stages)."""

    negative: np.ndarray  # bool: signed ops take minus their argument
    position: np.ndarray  # uint32, shape (..., 2): uniform; the centre of Cutout, x and y

    def centre(self, height: int, width: int) -> np.ndarray:
        """Return the drawn pixel (x, y) of an image of this size, as the kernels compute it."""
        return (self.position.astype(np.uint64) * np.array([width, height], np.uint64)) >> 32


NOTHING_DRAWN = Draws(np.zeros((1, 1), bool), np.zeros((1, 1, 2), np.uint32))  # for all samples


def draw(seed: int, samples: np.ndarray, stages: int, first: int = 0) -> Draws:
    """Draw for every sample index in `samples` (n,) at `stages` stages from `first` on."""
    if first + stages > MOST_STAGES:
        raise ValueError(f"at most {MOST_STAGES} draws per image, not {first + stages}")
    words = samples.astype(np.uint64)[:, None] * _SAMPLE + _of_sample_0(seed & _MASK, stages, first)
    for shift, times in zip(_SHIFTS, _TIMES, strict=False):
        words ^= words >> shift
        words *= times
    words ^= words >> _SHIFTS[-1]
    # No op has both a sign and a centre, so they may share bits.
    position = words.view(np.uint32).reshape(*words.shape, 2)
    return Draws((position[..., 0] & 1).astype(bool), position)


def sample_numbers(samples: Sequence[int] | np.ndarray | None, count: int) -> np.ndarray:
    """Return sample numbers as an array; 0, 1, … by default."""
    if samples is None:
        return np.arange(count)
    samples = np.asarray(samples)
    if samples.shape != (count,) or samples.dtype.kind not in "iu":
        raise ValueError(
            f"samples must be {count} whole numbers, one per image, "
            f"not {samples.dtype} of shape {samples.shape}"
        )
    return samples


@lru_cache(maxsize=256)
def _of_sample_0(seed: int, stages: int, first: int) -> np.ndarray:
    """Return the words to hash for the stages of sample 0."""
    return np.arange(first, first + stages, dtype=np.uint64) * _STAGE + np.uint64(_hash(seed))


def _hash(word: int) -> int:
    """Hash one Python integer, so that neighbouring seeds share no draws."""
    word = ((word ^ (word >> 30)) * _FIRST) & _MASK
    word = ((word ^ (word >> 27)) * _SECOND) & _MASK
    return word ^ (word >> 31)


# --- what happens to a sample in an epoch ---------------------------------------------------------

ATTEMPTS = 10  # at a random part that fits into the image, as in torchvision's RandomResizedCrop
CROP_DRAWS = 4 * ATTEMPTS
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)


@lru_cache(maxsize=256)  # PolicyTransform asks once per image
def epoch_key(seed: int, stream: Stream, epoch: int) -> int:
    """Return the key that a purpose's draws of an epoch are hashed with."""
    return number(seed, stream, epoch)


def uniforms(key: int, samples: np.ndarray, count: int) -> np.ndarray:
    """Return (B, count) numbers in [0, 1) for the samples (B,)."""
    words = draw(key, samples, -(-count // 2)).position.reshape(len(samples), -1)
    return words[:, :count] * 2.0**-32


def sign_key(seed: int, epoch: int) -> int:
    """Return the `seed` that `augment` takes in this epoch."""
    return epoch_key(seed, Stream.SIGNS, epoch)


def crops_and_flips(
    seed: int, epoch: int, samples: np.ndarray, flip: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw (B, CROP_DRAWS) numbers for `shifts` or `boxes`, and whether to mirror, (B,) bool."""
    drawn = uniforms(epoch_key(seed, Stream.CROPS, epoch), samples, CROP_DRAWS + 1)
    return np.ascontiguousarray(drawn[:, :-1]), (drawn[:, -1] < 0.5) & flip


def shifts(drawn: np.ndarray, padding: int) -> np.ndarray:
    """Return (B, 2) offsets (down, across), 0 to 2 · padding, into images padded on all sides."""
    return (drawn[:, :2] * (2 * padding + 1)).astype(np.int64)


def boxes(drawn: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return random parts of images of `sizes` (B, 2): corners and sizes, both (B, 2) int.

    A part has 8 to 100 % of the area and a ratio of 3:4 to 4:3. If none of ten fits, it is the
    largest centred one of such a ratio.
    """
    area, ratio, down, across = np.moveaxis(drawn.reshape(len(drawn), ATTEMPTS, 4), 2, 0)
    height, width = sizes[:, :1], sizes[:, 1:]
    area = (AREA[0] + (AREA[1] - AREA[0]) * area) * height * width
    low, high = np.log(RATIO)
    ratio = np.exp(low + (high - low) * ratio)
    tall, wide = np.rint(np.sqrt(area / ratio)), np.rint(np.sqrt(area * ratio))
    fits = (0 < tall) & (tall <= height) & (0 < wide) & (wide <= width)
    first = fits.argmax(1)[:, None]
    fitting = [np.take_along_axis(side, first, 1)[:, 0] for side in (tall, wide)]
    place = [np.take_along_axis(drawn, first, 1)[:, 0] for drawn in (down, across)]
    whole = sizes.T
    largest = np.minimum(whole, np.rint(whole[::-1] * RATIO[1]))
    some = fits.any(1)
    shape = np.where(some, fitting, largest)
    corner = np.where(some, np.floor(place * (whole - shape + 1)), (whole - shape) // 2)
    return corner.T.astype(np.int64), shape.T.astype(np.int64)


def hole_corners(
    seed: int, epoch: int, samples: np.ndarray, size: tuple[int, int], side: int
) -> np.ndarray:
    """Draw (B, 2) first row and column of a square hole around a random pixel; may lie outside."""
    drawn = uniforms(epoch_key(seed, Stream.HOLES, epoch), samples, 2)
    return (drawn * size).astype(np.int64) - side // 2
