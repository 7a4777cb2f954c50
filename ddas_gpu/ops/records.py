"""Policies as the records that the kernels read (kernels/tasks.h)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddas_gpu.ops.arrays import address_of
from ddas_gpu.ops.declare import COPY as COPY_PRIMITIVE
from ddas_gpu.ops.declare import AffineMatrix, Argument, Numbers, Op, compiler_definitions
from ddas_gpu.ops.table import BOX_OPS, find
from ddas_gpu.streams import NOTHING_DRAWN, Draws

if TYPE_CHECKING:
    from ddas_gpu.ops.arrays import Layout, Sizes
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
WHOLE_TASK = np.dtype(("V", TASK.itemsize))  # numpy copies it ten times faster than its fields
PICTURE = np.dtype(
    [
        ("source", "<i8"),
        ("target", "<i8"),
        ("scratch", "<i8"),
        ("height", "<i4"),
        ("width", "<i4"),
        ("source_pitch", "<i4"),
    ],
    align=True,
)

DEFINITIONS = compiler_definitions()  # for every compiler of the kernels

COPY = COPY_PRIMITIVE.code
REFUSED = -1  # in a table: the op is not defined at this image size

Step = tuple[str, Argument]  # an op and its argument


class TaskTable(NamedTuple):
    """The tasks of every step at one image size."""

    # WHOLE_TASK (2K + 2,): rows 2i and 2i + 1 are step i, the second with its argument negated if
    # op i is signed. The last two are copies: candidate -1 does nothing.
    tasks: np.ndarray
    refuses: bool  # whether any step is REFUSED


@lru_cache(maxsize=4096)
def task_table(steps: tuple[Step, ...], height: int, width: int) -> TaskTable:
    table = np.zeros((len(steps) + 1, 2), TASK)
    table["primitive"] = COPY
    for row, (name, argument) in zip(table, steps, strict=False):
        op = find(name)
        for task, value in zip(row, (argument, negated(op, argument)), strict=True):
            try:
                numbers = numbers_of(op, value, height, width)
            except ValueError:
                task["primitive"] = REFUSED
                continue
            task["primitive"] = op.primitive.code
            task["factor"] = numbers.factor
            task["ints"][: len(numbers.ints)] = numbers.ints
    refuses = bool((table["primitive"] == REFUSED).any())
    return TaskTable(table.view(WHOLE_TASK).reshape(-1), refuses)


def numbers_of(op: Op, argument: Argument, height: int, width: int) -> Numbers:
    """Return the op's numbers at this image size, or raise a ValueError if it has none."""
    check_size(op, height, width)
    if op.matrix is not None:
        return fixed_point(op.matrix(argument, height, width), height, width)
    return Numbers() if op.numbers is None else op.numbers(argument, height, width)


def check_size(op: Op, height: int, width: int) -> None:
    """Raise a ValueError if the op is not defined on images of this size."""
    if op.square and height != width:
        raise ValueError(f"{op.name} needs square images, not {height}x{width} pixels")


def negated(op: Op, argument: Argument) -> Argument:
    """Return minus the argument if its sign is drawn at random, else the argument."""
    return -argument if op.signed and argument is not None else argument


def fixed_point(matrix: AffineMatrix, height: int, width: int) -> Numbers:
    """Return Pillow's NEAREST affine map in 16.16 fixed point.

    The offset from a pixel's corner to its centre is included in c and f. Pillow leaves fixed
    point where a corner lies 32768 or more away; such images are refused.
    """
    a, b, c, d, e, f = matrix
    for x, y in ((0, 0), (width, 0), (0, height), (width, height)):
        if max(abs(a * x + b * y + c), abs(d * x + e * y + f)) >= 32768:
            raise ValueError(
                f"image of {height}x{width} pixels: geometric ops reach at most 32767 pixels"
            )
    centred = (a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5)
    return Numbers(ints=tuple(math.floor(v * 65536.0 + 0.5) for v in centred))


@lru_cache(maxsize=64)
def steps_of(space: SearchSpace) -> tuple[Step, ...]:
    """Return the op and argument of every candidate."""
    for candidate in space:
        if candidate.op in BOX_OPS:
            raise ValueError(f"{candidate.op} needs boxes: use ddas_gpu.ops.augment_boxes")
    return tuple((candidate.op, space.argument(i)) for i, candidate in enumerate(space))


class Request(NamedTuple):
    """The ops for a batch. Policies and draws have a row per image, or one row for all."""

    steps: tuple[Step, ...]
    policies: np.ndarray  # (B or 1, stages) indices into `steps`, -1 for nothing
    draws: Draws
    fill: int = 0

    @classmethod
    def of_one(cls, op: str, argument: Argument, draws: Draws = NOTHING_DRAWN) -> Request:
        """Return the request of one op on every image."""
        return cls(((op, argument),), FIRST_STEP, draws)


FIRST_STEP = np.zeros((1, 1), np.intp)


class Records:
    """Records for the kernels, with their address: looking it up takes longer than some ops."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.address = address_of(array) if array.size else 0

    def __len__(self) -> int:
        return len(self.array)


class Chains(NamedTuple):
    """The tasks of a batch in one array, and the range of each image."""

    tasks: Records  # TASK, or WHOLE_TASK
    shares: Records  # int32 (B, 2): the first task and the number of tasks


class Inputs(NamedTuple):
    """How the images of a batch become the input of a model: Inputs in kernels/tasks.h."""

    holes: Records  # int32 (B, 4): left, top, right, bottom; 0 in between
    table: Records  # (3, 256) words
    out: int  # the address of the result
    height: int
    width: int
    planar: bool
    word_bytes: int

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        return self.height, self.width, int(self.planar), self.word_bytes


def no_chains(batch: int) -> Chains:
    """Return chains that do nothing."""
    return Chains(Records(np.zeros(0, TASK)), shares_of(np.zeros(1, np.int32), batch))


def chains_for(request: Request, sizes: Sizes, batch: int) -> Chains:
    """Return the tasks of a request."""
    if request.draws is NOTHING_DRAWN and isinstance(sizes, tuple):
        return _chains_of_one(request.steps[0], sizes, batch)
    return _chains(request, sizes, batch)


@lru_cache(maxsize=4096)
def _chains_of_one(step: Step, size: tuple[int, int], batch: int) -> Chains:
    return _chains(Request.of_one(*step), size, batch)


def _chains(request: Request, sizes: Sizes, batch: int) -> Chains:
    tasks = _tasks(request, sizes)
    return Chains(Records(tasks), _even_shares(*tasks.shape, batch))


@lru_cache(maxsize=1024)
def _even_shares(rows: int, stages: int, batch: int) -> Records:
    """Return the ranges for one row of tasks per image, or one row for all."""
    return shares_of(np.full(rows, stages), batch)


def shares_of(counts: np.ndarray, batch: int) -> Records:
    """Return the ranges for `counts` tasks: (B,), or (1,) if all images share the tasks."""
    shares = np.empty((batch, 2), np.int32)
    shares[:, 0] = counts.cumsum() - counts
    shares[:, 1] = counts
    return Records(shares)


def pictures_for(source: Layout, target: Layout) -> Records:
    """Return the PICTURE records of a batch."""
    return (_pictures_of_arrays if one_size(source.sizes) else _pictures)(source, target)


def _pictures(source: Layout, target: Layout) -> Records:
    pictures = np.zeros(len(source.offsets), PICTURE)
    pictures["source"] = source.offsets
    pictures["target"] = target.offsets
    heights, widths = source.sizes if one_size(source.sizes) else np.array(source.sizes).T
    pictures["height"] = heights
    pictures["width"] = widths
    pictures["source_pitch"] = source.pitches
    dense = 3 * pictures["height"].astype(np.int64) * widths
    pictures["scratch"] = dense.cumsum() - dense
    return Records(pictures)


def pictures_of_source(source: Layout) -> Records:
    """Return the PICTURE records of a batch whose target is memory like the scratch memory."""
    pictures = _pictures(source, source).array
    pictures["target"] = pictures["scratch"]
    return Records(pictures)


@lru_cache(maxsize=256)
def _pictures_of_arrays(source: Layout, target: Layout) -> Records:
    return _pictures(source, target)


def _tasks(request: Request, sizes: Sizes) -> np.ndarray:
    """Return (B or 1, stages) WHOLE_TASK records; COPY does nothing."""
    steps, policies, draws, fill = request
    rows = 2 * policies + draws.negative
    if isinstance(sizes, tuple):
        table = task_table(steps, *sizes)
        tasks, refuses = table.tasks[rows], table.refuses
    else:
        rows = np.broadcast_to(rows, (len(sizes), rows.shape[1]))
        tables = [task_table(steps, *size) for size in sizes]
        tasks, refuses = np.empty(rows.shape, WHOLE_TASK), any(table.refuses for table in tables)
        for i, table in enumerate(tables):
            tasks[i] = table.tasks[rows[i]]
    fields = tasks.view(TASK)
    if refuses:
        _check_refusals(steps, policies, sizes, fields)
    fields["draw"] = draws.position
    fields["fill"] = fill
    return tasks


def one_size(sizes: Sizes) -> bool:
    return isinstance(sizes, tuple)


def _check_refusals(
    steps: tuple[Step, ...], policies: np.ndarray, sizes: Sizes, tasks: np.ndarray
) -> None:
    """Raise the error of the first step that is not defined at its image size."""
    policies = np.broadcast_to(policies, tasks.shape)
    for image, stage in np.argwhere(tasks["primitive"] == REFUSED):
        name, argument = steps[policies[image, stage]]
        height, width = sizes if isinstance(sizes, tuple) else sizes[image]
        numbers_of(find(name), argument, height, width)
        raise ValueError(f"{name} by ±{argument} is not possible for image {image}")
