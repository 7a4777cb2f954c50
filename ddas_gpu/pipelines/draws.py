"""Every random choice of a pipeline: a pure function of (seed, epoch, sample).

A sample is known by its place in the data set, so what happens to it in an epoch depends on
nothing else: not on the batch it is in, the rank or thread that asks, the prefetching, or where a
run was resumed.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ddas_gpu import streams
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.streams import Stream

ATTEMPTS = 10  # at a random part that fits into the image, as in torchvision's RandomResizedCrop
CROP_DRAWS = 4 * ATTEMPTS
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)


@lru_cache(maxsize=256)  # PolicyTransform asks once per image
def epoch_key(seed: int, stream: Stream, epoch: int) -> int:
    """Return the key that a purpose's draws of an epoch are hashed with."""
    return streams.number(seed, stream, epoch)


def uniforms(key: int, samples: np.ndarray, count: int) -> np.ndarray:
    """Return (B, count) numbers in [0, 1) for the samples (B,)."""
    words = streams.draw(key, samples, -(-count // 2)).position.reshape(len(samples), -1)
    return words[:, :count] * 2.0**-32


def draw_policies(
    schedule: PolicySchedule, total_epochs: int, seed: int, epoch: int, samples: np.ndarray
) -> np.ndarray:
    """Draw (B, N_o) candidate indices; a row of -1 for a sample that is not augmented.

    Each sample is augmented with the probability p_tp of this epoch, by N_o candidates drawn
    from p_o. Beyond the last epoch its probabilities stay.
    """
    apply_probability, probabilities = schedule.at(min(epoch, total_epochs - 1), total_epochs)
    key = epoch_key(seed, Stream.POLICIES, epoch)
    drawn = uniforms(key, samples, 1 + schedule.space.depth)
    steps = np.cumsum(probabilities)
    steps /= steps[-1]  # so that a draw below 1 never falls behind the last candidate
    policies = np.searchsorted(steps, drawn[:, 1:], side="right")
    policies[drawn[:, 0] >= apply_probability] = -1
    return policies


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
