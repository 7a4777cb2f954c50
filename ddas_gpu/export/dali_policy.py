"""The policy of an epoch as a `Policy` of DALI's `auto_aug`.

Most ops become DALI's own operators; `differences.DALI` bounds how far those are from ours.
Equalize and Cutout, which DALI defines otherwise, call our ops on the device that holds the data.

`auto_aug` draws a sub-policy uniformly, so probabilities become counts: of 1000 sub-policies,
round(1000 · p_tp · p_o[k]) apply candidate k at each stage, and the rest leave the image unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ddas_gpu.data.splits import shares
from ddas_gpu.ops.table import find
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import SearchSpace

if TYPE_CHECKING:
    from nvidia.dali.auto_aug.core import Policy

SUB_POLICIES = 1000


def dali_policy(
    schedule: PolicySchedule, epoch: int, total_epochs: int, sub_policies: int = SUB_POLICIES
) -> Policy:
    """Return the policy for `epoch` of a training of `total_epochs`.

    Use it in a pipeline with enable_conditionals=True, on uint8 HWC images:
    `images = auto_augment.apply_auto_augment(policy, images)`.
    """
    core, operators = _dali()
    apply_probability, probabilities = schedule.at(epoch, total_epochs)
    space = schedule.space
    augmented = round(apply_probability * sub_policies)
    drawn = _columns(probabilities, augmented, space.depth)
    triples, bins = _triples(space, operators)
    nothing = (operators.augmentation_of("Identity", [None]), 1.0, None)
    rows = [[triples[index] for index in row] for row in drawn]
    rows += [[nothing] * space.depth] * (sub_policies - augmented)
    return core.Policy(f"epoch {epoch} of {total_epochs}", bins, rows)


def _dali() -> tuple[Any, Any]:
    try:
        from nvidia.dali.auto_aug import core

        from ddas_gpu.export import dali_operators
    except ImportError as error:
        raise ValueError(f"exporting to DALI needs nvidia-dali installed: {error}") from None
    return core, dali_operators


def _columns(probabilities: np.ndarray, count: int, depth: int) -> np.ndarray:
    """Return (count, depth) candidates; every column is a permutation with the counts of p_o."""
    if not count:
        return np.empty((0, depth), int)
    column = np.repeat(np.arange(len(probabilities)), shares(count, probabilities))
    generator = np.random.default_rng(0)
    return np.stack([generator.permutation(column) for _ in range(depth)], axis=1)


def _triples(space: SearchSpace, operators: Any) -> tuple[list[tuple[Any, float, int | None]], int]:
    """Return DALI's (augmentation, probability, bin) of each candidate, and the number of bins."""
    arguments: dict[str, list[Any]] = {}
    for index, candidate in enumerate(space):
        arguments.setdefault(candidate.op, []).append(space.argument(index))
    bins = max(len(values) for values in arguments.values())
    made: dict[str, Callable[..., Any]] = {}
    for op, values in arguments.items():
        # All augmentations of a policy need the same number of bins: repeat the last.
        made[op] = operators.augmentation_of(
            op, values + values[-1:] * (bins - len(values)), space.fill
        )
    places: dict[str, int] = dict.fromkeys(arguments, 0)
    triples = []
    for candidate in space:
        op = candidate.op
        triples.append((made[op], 1.0, None if find(op).law is None else places[op]))
        places[op] += 1
    return triples, bins
