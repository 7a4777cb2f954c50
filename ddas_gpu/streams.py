"""Randomness as a pure function of (seed, purpose, position).

Nothing in a search keeps the state of a generator: whoever knows the seed and the step knows
every draw. So runs repeat, and a resumed run draws what the uninterrupted one would have.
"""

from __future__ import annotations

from enum import IntEnum, auto

import numpy as np


class Stream(IntEnum):
    """What a draw is for; streams never share numbers."""

    SPLIT = auto()
    WEIGHTS = auto()
    TRAINING_ORDER = auto()
    VALIDATION_ORDER = auto()
    CROPS = auto()
    HOLES = auto()
    POLICIES = auto()
    SIGNS = auto()
    MODEL = auto()


def generator(seed: int, stream: Stream, *position: int) -> np.random.Generator:
    """The generator for one purpose at one position, such as (epoch,) or (step,)."""
    return np.random.default_rng([seed, stream, *position])


def number(seed: int, stream: Stream, *position: int) -> int:
    """A 63-bit seed for libraries that bring their own generators."""
    return int(generator(seed, stream, *position).integers(2**63))
