"""The randomness inside ops: a pure function of (seed, sample, stage).

A hash of the three instead of a generator with a state: whoever asks, in whatever order, on
whatever rank or device, gets the same signs and centres for the same sample.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

MOST_STAGES = 1 << 16
_MASK = (1 << 64) - 1
# The constants of splitmix64: word n is the hash of key + n · STEP.
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Draws(NamedTuple):
    """What an op may need; the arrays start with the shape (samples, stages)."""

    negative: np.ndarray  # bool: signed ops take minus their argument
    position: np.ndarray  # uint32, shape (..., 2): uniform; Cutout's centre across and down

    def centre(self, height: int, width: int) -> np.ndarray:
        """The drawn pixel (x, y) of an image of this size, as the kernels compute it."""
        return (self.position.astype(np.uint64) * np.array([width, height], np.uint64)) >> 32


NOTHING_DRAWN = Draws(np.zeros((1, 1), bool), np.zeros((1, 1, 2), np.uint32))  # for all samples


def draw(seed: int, samples: np.ndarray, stages: int, first: int = 0) -> Draws:
    """Draws for every sample index in `samples` (n,) at `stages` stages from `first` on."""
    if first + stages > MOST_STAGES:
        raise ValueError(f"at most {MOST_STAGES} draws an image, not {first + stages}")
    counters = samples.astype(np.uint64)[:, None] * MOST_STAGES
    words = (counters + np.arange(first, first + stages, dtype=np.uint64)) * _STEP + _hash(
        seed & _MASK
    )
    words = (words ^ (words >> 30)) * _FIRST
    words = (words ^ (words >> 27)) * _SECOND
    words ^= words >> 31
    # No op has both a sign and a place, and the lowest of 32 bits does not move a place.
    negative = (words & 1).astype(bool)
    return Draws(negative, words.view(np.uint32).reshape(*words.shape, 2))


def _hash(word: int) -> int:
    """The same hash for one Python integer, so that neighbouring seeds share no draws."""
    word = ((word ^ (word >> 30)) * _FIRST) & _MASK
    word = ((word ^ (word >> 27)) * _SECOND) & _MASK
    return word ^ (word >> 31)
