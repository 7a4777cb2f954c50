"""Policies to compare with, as schedules of one entry: the same at every epoch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ddas_gpu.ops.table import BOX_OPS, PixelScale
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import Candidate, SearchSpace

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
# Ops that mirror their magnitudes in the wide ranges: 0.01 … 1 … 1.99.
MIRRORED = ("Color", "Contrast", "Brightness", "Sharpness")
WIDE_TRANSLATION = 32  # pixels
START = 0.35  # p_tp before a search, in all the paper's experiments


def uniform(space: SearchSpace, apply_probability: float = START) -> PolicySchedule:
    """Return what a search starts from: every candidate equally likely."""
    return _constant(space, apply_probability, np.full(len(space), 1 / len(space)), "uniform")


def nothing(space: SearchSpace) -> PolicySchedule:
    """Return a policy that augments no image."""
    return _constant(space, 0.0, np.full(len(space), 1 / len(space)), "none")


def levelled(schedule: PolicySchedule) -> PolicySchedule:
    """Return a schedule with the same candidates and p_tp, all candidates equally likely."""
    p_o = np.full_like(schedule.p_o, 1 / len(schedule.space))
    return replace(schedule, p_o=p_o, settings={"baseline": "uniform"})


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
    space = SearchSpace.of(RANDAUGMENT_OPS, _levels(TRIVIALAUGMENT_BINS), 1, scale)
    return _constant(space, 1.0, _even_ops(space), "trivialaugment")


def trivialaugment_wide(image_size: int = WIDE_TRANSLATION) -> PolicySchedule:
    """Return TrivialAugment in its wide ranges, those of torchvision's TrivialAugmentWide.

    Shifts of up to 32 pixels at any image size are published, the width of a CIFAR image. Smaller
    images are shifted by at most their own width: the same share.
    """
    scale = PixelScale(translate=min(image_size, WIDE_TRANSLATION))
    levels = _levels(TRIVIALAUGMENT_BINS), _levels(2 * TRIVIALAUGMENT_BINS - 1)
    spaces = [SearchSpace.of([op], levels[op in MIRRORED]) for op in RANDAUGMENT_OPS]
    candidates = tuple(candidate for space in spaces for candidate in space)
    space = SearchSpace(candidates, 1, scale, ranges="wide")
    return _constant(space, 1.0, _even_ops(space), "trivialaugment-wide")


def _levels(count: int) -> list[float]:
    """Return levels from 0 to 10, evenly spread."""
    # Rounded up: the magnitudes are truncated, and 4.999… degrees would become 4.
    return (np.ceil(np.linspace(0, 10, count) * 1e6) / 1e6).tolist()


def _even_ops(space: SearchSpace) -> np.ndarray:
    """Return p_o with equally likely ops: the levels of an op share its probability.

    Of mirrored levels the one in the middle counts twice: it is the first magnitude, with either
    sign.
    """
    ops = [candidate.op for candidate in space]
    weights = np.ones(len(space))
    if space.ranges == "wide":
        middle = [c.op in MIRRORED and c.level == 5 for c in space]
        weights[middle] = 2
    sums = {op: weights[[other == op for other in ops]].sum() for op in set(ops)}
    return weights / [len(sums) * sums[op] for op in ops]


def with_boxes(schedule: PolicySchedule, fill: int) -> PolicySchedule:
    """Return the schedule for detection: ops that move pixels move the boxes, too."""

    def moved(candidate: Candidate) -> Candidate:
        name = f"{candidate.op}_BBox"
        return replace(candidate, op=name) if name in BOX_OPS else candidate

    space = schedule.space
    space = replace(space, candidates=tuple(map(moved, space)), fill=fill)
    return replace(schedule, space=space)


def _constant(
    space: SearchSpace, apply_probability: float, p_o: np.ndarray, name: str
) -> PolicySchedule:
    return PolicySchedule(space, np.array([apply_probability]), p_o[None], {"baseline": name})
