"""Randomness as a pure function of (seed, purpose, position).

No generator keeps state between steps: the seed and the step determine every draw. So runs are
repeatable, and a resumed run draws the same numbers as an uninterrupted one.
"""

from __future__ import annotations

from enum import IntEnum, auto

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
