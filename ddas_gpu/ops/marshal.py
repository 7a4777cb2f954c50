"""From policies to the records that the kernels read (kernels/tasks.h), for every target."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddas_gpu.ops.box_table import BOX_OPS
from ddas_gpu.ops.draws import NOTHING_DRAWN, Draws
from ddas_gpu.ops.table import Argument, Numbers, Op, Primitive, find

if TYPE_CHECKING:
    from ddas_gpu.ops.arrays import Batch, Sizes
    from ddas_gpu.space import SearchSpace

TASK = np.dtype(
    [
        ("primitive", "<i4"),
        ("factor", "<f4"),
        ("ints", "<i4", 6),
        ("draw", "<u4", 2),
        ("region", "<i4", 4),  # left, top, width, height; width 0: the whole image
        ("fill", "<i4"),
    ],
    align=True,
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
        ("whole", "<i4"),
    ],
    align=True,
)

# The compiler definitions that give the kernels the codes of the op table.
DEFINITIONS = tuple(f"-DPRIMITIVE_{p.name}={p.value}" for p in Primitive)

COPY = int(Primitive.COPY)  # numpy compares with an int ten times faster than with an enum
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
    table["primitive"] = COPY
    for row, (name, argument) in zip(table, steps, strict=False):
        op = find(name)
        for task, value in zip(row, (argument, -argument if op.signed else argument), strict=True):
            try:
                numbers = numbers_of(op, value, height, width)
            except ValueError:
                task["primitive"] = REFUSED
                continue
            task["primitive"] = op.primitive
            task["factor"] = numbers.factor
            task["ints"][: len(numbers.ints)] = numbers.ints
    table.flags.writeable = False  # it is shared by every later call
    return TaskTable(table, bool((table["primitive"] == REFUSED).any()))


def numbers_of(op: Op, argument: Argument, height: int, width: int) -> Numbers:
    """The op's numbers at this image size, or a ValueError that says why there are none."""
    if op.square and height != width:
        raise ValueError(f"{op.name} needs square images, not {height}x{width} pixels")
    return op.numbers(argument, height, width)


@lru_cache(maxsize=64)
def steps_of(space: SearchSpace) -> tuple[Step, ...]:
    """The op and argument of every candidate."""
    for candidate in space:
        if candidate.op in BOX_OPS:
            raise ValueError(f"{candidate.op} needs boxes: use ddas_gpu.ops.augment_boxes")
    return tuple((candidate.op, space.argument(i)) for i, candidate in enumerate(space))


class Request(NamedTuple):
    """What to do to a batch. Policies and draws have a row an image, or one row for all."""

    steps: tuple[Step, ...]
    policies: np.ndarray  # (B or 1, stages) indices into `steps`, -1 for nothing
    draws: Draws
    fill: int = 0

    @classmethod
    def same_for_all(cls, op: str, argument: Argument) -> Request:
        """One op with nothing left to draw."""
        return cls(((op, argument),), FIRST_STEP, NOTHING_DRAWN)


FIRST_STEP = np.zeros((1, 1), np.intp)


class Chains(NamedTuple):
    """The TASK records of a batch end to end, and each image's share, or one share for all."""

    tasks: np.ndarray
    first: np.ndarray  # int32 (B or 1,)
    count: np.ndarray
    whole: np.ndarray  # how many of the tasks are on the whole image


def chains_for(request: Request, sizes: Sizes) -> Chains:
    """What the kernels have to do, without the steps that do nothing."""
    if request.draws is NOTHING_DRAWN and one_size(sizes):
        return _chains_of_one(request.steps[0], sizes)
    return _chains(request, sizes)


@lru_cache(maxsize=4096)
def _chains_of_one(step: Step, size: tuple[int, int]) -> Chains:
    return _chains(Request.same_for_all(*step), size)


def _chains(request: Request, sizes: Sizes) -> Chains:
    tasks = _tasks(request, sizes)
    keep = tasks["primitive"] != COPY
    count = keep.sum(axis=1, dtype=np.int32)
    return Chains(tasks[keep], count.cumsum(dtype=np.int32) - count, count, count)


def pictures_for(source: Batch, target: Batch, chains: Chains) -> np.ndarray:
    """The PICTURE records of a batch."""
    pictures = np.zeros(len(source), PICTURE)
    pictures["source"] = source.addresses
    pictures["target"] = target.addresses
    heights, widths = source.sizes if one_size(source.sizes) else np.array(source.sizes).T
    pictures["height"] = heights
    pictures["width"] = widths
    pictures["source_pitch"] = source.pitches
    pictures["first"] = chains.first
    pictures["count"] = chains.count
    pictures["whole"] = chains.whole
    return pictures


def _tasks(request: Request, sizes: Sizes) -> np.ndarray:
    """(B or 1, stages) TASK records, COPY where there is nothing to do."""
    steps, policies, draws, fill = request
    signs = draws.negative.view(np.int8)
    if one_size(sizes):
        table = task_table(steps, *sizes)
        tasks, refuses = table.tasks[policies, signs], table.refuses
    else:
        policies, signs = (np.broadcast_to(a, (len(sizes), a.shape[1])) for a in (policies, signs))
        tables = [task_table(steps, *size) for size in sizes]
        tasks, refuses = np.zeros(policies.shape, TASK), any(table.refuses for table in tables)
        for i, table in enumerate(tables):
            tasks[i] = table.tasks[policies[i], signs[i]]
    if refuses:
        _check_refusals(steps, policies, sizes, tasks)
    tasks["draw"] = draws.position
    tasks["fill"] = fill
    return tasks


def one_size(sizes: Sizes) -> bool:
    return isinstance(sizes, tuple)


def _check_refusals(steps, policies, sizes, tasks):
    policies = np.broadcast_to(policies, tasks.shape)
    for image, stage in np.argwhere(tasks["primitive"] == REFUSED):
        name, argument = steps[policies[image, stage]]
        numbers_of(find(name), argument, *(sizes if one_size(sizes) else sizes[image]))
        raise ValueError(f"{name} by ±{argument} is not possible for image {image}")
