"""Candidates that do the same to the images of a run: their probabilities are read together.

They stay in the space, which is the paper's, and in policy files. In the presets Posterize and
Solarize reach their ends at level 10, and Solarize's end is Invert.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ddas_gpu import ops
from ddas_gpu.ops.table import Reach, find_any
from ddas_gpu.space import SearchSpace

LARGEST = 256  # pixels per side of the images that candidates are tried on
TRIALS = 4


def same_candidates(
    space: SearchSpace, size: int, *, flip: bool = False, grey: bool = False
) -> list[list[int]]:
    """Return groups of two or more candidates that change images of `size` pixels alike.

    flip: images are mirrored at random anyway; grey: their channels are equal.

    >>> space = SearchSpace.preset("cifar")
    >>> [[str(space[i]) for i in group] for group in same_candidates(space, 32, flip=True)]
    [['Identity', 'FlipLR'], ['Invert', 'Solarize 10', 'Solarize 14'], \
['Posterize 10', 'Posterize 14']]
    """
    images = trial_images(min(size, LARGEST), grey)
    effects: dict[Any, list[int]] = {}
    for index, effect in enumerate(_effects(space, images)):
        mirrored = flip and space[index].op == "FlipLR"
        effects.setdefault(images.tobytes() if mirrored else effect, []).append(index)
    return [group for group in effects.values() if len(group) > 1]


def _effects(space: SearchSpace, images: np.ndarray) -> list[Any]:
    """Return what each candidate makes of the images; of ops on boxes only their arguments."""
    effects: list[Any] = [(c.op, space.argument(index)) for index, c in enumerate(space)]
    places = [i for i, c in enumerate(space) if find_any(c.op).reach is Reach.IMAGE]
    if not places:
        return effects
    alone = replace(space, candidates=tuple(space[index] for index in places))
    samples = np.arange(len(images))  # which the signs and places are drawn by: for all the same
    for row, index in enumerate(places):
        policies = np.full((len(images), 1), row)
        effects[index] = ops.augment(images, policies, alone, 0, samples=samples).tobytes()
    return effects


def trial_images(size: int, grey: bool) -> np.ndarray:
    """Return images (n, size, size, 3) that every op changes: uneven, without 0 and 255.

    Equalize leaves small images alone, except those with a single brightest pixel.
    """
    generator = np.random.default_rng(0)
    pixels = (4 + 240 * generator.beta(2, 3, (TRIALS, size, size, 3))).astype(np.uint8)
    pixels[::2, size // 2, size // 3] = 250
    return np.repeat(pixels[..., :1], 3, axis=-1) if grey else pixels


def sameness(space: SearchSpace, size: int, *, flip: bool, grey: bool) -> str | None:
    """Return a sentence about the candidates that are the same; None if all differ."""
    groups = same_candidates(space, size, flip=flip, grey=grey)
    if not groups:
        return None
    named = "; ".join(" = ".join(str(space[index]) for index in group) for group in groups)
    names = {space[index].op for group in groups for index in group}
    reasons = ["images are mirrored at random anyway"] * (flip and "FlipLR" in names)
    reasons += ["the images are grey"] * (grey and "Color" in names)
    because = f" ({', '.join(reasons)})" if reasons else ""
    return f"these candidates do the same here{because}: {named}"
