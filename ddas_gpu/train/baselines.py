"""Policies to compare with, as schedules of one entry: the same at every epoch."""

from __future__ import annotations

import numpy as np

from ddas_gpu.ops.table import PixelScale
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import SearchSpace

# The 14 ops of RandAugment; TrivialAugment has the same.
RANDAUGMENT_OPS = (
    "Identity",
    "AutoContrast",
    "Equalize",
    "Rotate",
    "Solarize",
    "Color",
    "Posterize",
    "Contrast",
    "Brightness",
    "Sharpness",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
)
TRIVIALAUGMENT_BINS = 31
START = 0.35  # p_tp before a search, in all the paper's experiments


def uniform(space: SearchSpace, apply_probability: float = START) -> PolicySchedule:
    """Return what a search starts from: every candidate equally likely."""
    return _constant(space, apply_probability, np.full(len(space), 1 / len(space)), "uniform")


def randaugment(
    ops: int = 2, level: float = 9.0, scale: PixelScale = PixelScale()
) -> PolicySchedule:
    """Return RandAugment (Cubuk et al., 2020): `ops` ops on every image, all at one level.

    Our levels are RandAugment's: its published magnitudes can be given as they are.
    """
    space = SearchSpace.of(RANDAUGMENT_OPS, (level,), ops, scale)
    return _constant(space, 1.0, np.full(len(space), 1 / len(space)), "randaugment")


def trivialaugment(scale: PixelScale = PixelScale()) -> PolicySchedule:
    """Return TrivialAugment (Müller & Hutter, 2021): one op per image, at any of 31 magnitudes.

    The magnitudes are AutoAugment's ranges (the authors' "RA" space), levels 0 to 10 of ours.
    """
    # Rounded up: the magnitudes are truncated, and 4.999… degrees would become 4.
    levels = (np.ceil(np.linspace(0, 10, TRIVIALAUGMENT_BINS) * 1e6) / 1e6).tolist()
    space = SearchSpace.of(RANDAUGMENT_OPS, levels, 1, scale)
    ops = [candidate.op for candidate in space]
    # Ops are equally likely; the levels of an op share its probability.
    p_o = np.array([1 / (len(RANDAUGMENT_OPS) * ops.count(op)) for op in ops])
    return _constant(space, 1.0, p_o, "trivialaugment")


def _constant(
    space: SearchSpace, apply_probability: float, p_o: np.ndarray, name: str
) -> PolicySchedule:
    return PolicySchedule(space, np.array([apply_probability]), p_o[None], {"baseline": name})
