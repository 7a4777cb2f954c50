"""From policies to the records that the kernels read (kernels/tasks.h), for every target."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddas_gpu.ops.draws import Draws
from ddas_gpu.ops.table import Argument, Primitive, find

if TYPE_CHECKING:
    from ddas_gpu.space import SearchSpace

TASK = np.dtype(
    [("primitive", "<i4"), ("factor", "<f4"), ("ints", "<i4", 6), ("draw", "<u4", 2)], align=True
)
PICTURE = np.dtype(
    [
        ("source", "<u8"),
        ("target", "<u8"),
        ("scratch", "<u8"),
        ("height", "<i4"),
        ("width", "<i4"),
        ("source_pitch", "<i4"),
        ("first", "<i4"),
        ("count", "<i4"),
        ("unused", "<i4"),
    ],
    align=True,
)

# The compiler definitions that give the kernels the codes of the op table.
DEFINITIONS = tuple(f"-DPRIMITIVE_{p.name}={p.value}" for p in Primitive)

REFUSED = -1  # stands in a table for an op that cannot be done at this image size

Step = tuple[str, Argument]  # an op and its argument


class TaskTable(NamedTuple):
    """Tasks for every step at one image size."""

    # (K + 1, 2): [i, 1] has the argument negated if op i is signed. The last row does nothing, so
    # that candidate -1 leaves an image alone.
    tasks: np.ndarray
    refuses: bool  # whether any step is REFUSED


@lru_cache(maxsize=4096)
def task_table(steps: tuple[Step, ...], height: int, width: int) -> TaskTable:
    table = np.zeros((len(steps) + 1, 2), TASK)
    table["primitive"] = Primitive.COPY
    for row, (name, argument) in zip(table, steps, strict=False):
        op = find(name)
        for task, value in zip(row, (argument, -argument if op.signed else argument), strict=True):
            try:
                numbers = _numbers(op, value, height, width)
            except ValueError:
                task["primitive"] = REFUSED
                continue
            task["primitive"] = op.primitive
            task["factor"] = numbers.factor
            task["ints"][: len(numbers.ints)] = numbers.ints
    table.flags.writeable = False  # it is shared by every later call
    return TaskTable(table, bool((table["primitive"] == REFUSED).any()))


def _numbers(op, argument, height, width):
    if op.square and height != width:
        raise ValueError(f"{op.name} needs square images, not {height}x{width} pixels")
    return op.numbers(argument, height, width)


@lru_cache(maxsize=64)
def steps_of(space: SearchSpace) -> tuple[Step, ...]:
    """The op and argument of every candidate."""
    return tuple((candidate.op, space.argument(i)) for i, candidate in enumerate(space))


def tasks_for(
    steps: tuple[Step, ...],
    policies: np.ndarray,
    sizes: tuple[int, int] | Sequence[tuple[int, int]],
    draws: Draws,
) -> tuple[np.ndarray, np.ndarray]:
    """The tasks of a batch end to end, and how many each image has.

    policies: (B, stages) indices into `steps`, -1 for nothing; sizes: (height, width) of all
    images, or one pair an image.
    """
    tables = [task_table(steps, *size) for size in ([sizes] if one_size(sizes) else sizes)]
    signs = draws.negative.view(np.int8)
    if one_size(sizes):
        tasks = tables[0].tasks[policies, signs]
    else:
        tasks = np.zeros(policies.shape, TASK)
        for i, table in enumerate(tables):
            tasks[i] = table.tasks[policies[i], signs[i]]
    if any(table.refuses for table in tables):
        _check_refusals(steps, policies, sizes, tasks)
    tasks["draw"] = draws.position
    keep = tasks["primitive"] != Primitive.COPY
    return tasks[keep], keep.sum(axis=1, dtype=np.int32)


def one_size(sizes: tuple[int, int] | Sequence[tuple[int, int]]) -> bool:
    return isinstance(sizes, tuple)


def _check_refusals(steps, policies, sizes, tasks):
    for image, stage in np.argwhere(tasks["primitive"] == REFUSED):
        name, argument = steps[policies[image, stage]]
        _numbers(find(name), argument, *(sizes if one_size(sizes) else sizes[image]))
        raise ValueError(f"{name} by ±{argument} is not possible for image {image}")
