"""Randomness as a pure function of (seed, purpose, position).

No generator keeps state between steps: the seed and the step determine every draw. So runs are
repeatable, and a resumed run draws the same numbers as an uninterrupted one. What is drawn for a
sample (`draw`) is a hash of (seed, sample, stage): a sample gets the same signs and centres in any
order, on any rank and on any device.
"""

from __future__ import annotations

from enum import IntEnum, auto
from functools import lru_cache
from typing import NamedTuple

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


@lru_cache(maxsize=256)
def _of_sample_0(seed: int, stages: int, first: int) -> np.ndarray:
    """Return the words to hash for the stages of sample 0."""
    return np.arange(first, first + stages, dtype=np.uint64) * _STAGE + np.uint64(_hash(seed))


def _hash(word: int) -> int:
    """Hash one Python integer, so that neighbouring seeds share no draws."""
    word = ((word ^ (word >> 30)) * _FIRST) & _MASK
    word = ((word ^ (word >> 27)) * _SECOND) & _MASK
    return word ^ (word >> 31)
