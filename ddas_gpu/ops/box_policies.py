"""Policies on images with boxes: the kernels transform the pixels, this module the boxes.

Boxes are (n, 4) floats in pixels, x0 y0 x1 y1; (0, 0) is the top left corner of the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ddas_gpu.ops import arrays
from ddas_gpu.ops.api import run_chains, target_of
from ddas_gpu.ops.arrays import Batch, Images
from ddas_gpu.ops.backends import choose_backend
from ddas_gpu.ops.declare import AffineMatrix, Argument, Op
from ddas_gpu.ops.records import TASK, Chains, Records, negated, numbers_of, shares_of
from ddas_gpu.ops.table import Reach, find_any
from ddas_gpu.streams import draw, sample_numbers

if TYPE_CHECKING:
    from ddas_gpu.space import SearchSpace

BOX_PROBABILITY = 1 / 3  # of Reach.EACH_BOX
SMALLEST_SHARE = 0.05  # of the image's side; a larger box is not made smaller than this
MOST_BOXES = 2048  # per image: each box has its own range of draws

Region = tuple[int, int, int, int]  # left, top, width, height


class BoxStep(NamedTuple):
    """One op on one image, or on a rectangle of it."""

    op: Op
    argument: Argument
    position: np.ndarray  # uint32 (2,): the drawn centre of a centred op
    region: Region | None


class Plans(NamedTuple):
    """The steps for each image of a batch, and the boxes and labels after them."""

    steps: list[list[BoxStep]]
    boxes: list[np.ndarray]
    labels: list[np.ndarray]


def augment_boxes(
    images: Sequence[Images],
    boxes: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    policy: Sequence[int] | np.ndarray,
    space: SearchSpace,
    seed: int = 0,
    *,
    samples: Sequence[int] | np.ndarray | None = None,
    backend: str = "auto",
) -> tuple[list[Images], list[np.ndarray], list[np.ndarray]]:
    """Apply a policy to a list of images with their boxes (n, 4) and labels (n,).

    Boxes that leave the image are dropped, with their labels. The other parameters are those of
    `augment`.
    """
    images = list(images)
    source, out = arrays.read(images), arrays.empty_like(images)
    plans = plan_boxes(source.size_list(), boxes, labels, policy, space, seed, samples=samples)
    _run_steps(source, out, plans.steps, space.fill, backend)
    return out, plans.boxes, plans.labels


def plan_boxes(
    sizes: Sequence[tuple[int, int]],
    boxes: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    policy: Sequence[int] | np.ndarray,
    space: SearchSpace,
    seed: int = 0,
    *,
    samples: Sequence[int] | np.ndarray | None = None,
) -> Plans:
    """Return the steps, boxes and labels of `augment_boxes` from each image's (height, width)."""
    boxes, labels = _check_boxes(boxes, labels, len(sizes))
    policies = space.check_policies(policy)
    if policies.ndim == 2 and len(policies) != len(sizes):
        raise ValueError(f"{len(policies)} policies for {len(sizes)} images: give one per image")
    policies = np.broadcast_to(policies, (len(sizes), policies.shape[-1]))
    numbers = sample_numbers(samples, len(sizes))
    negative, position = draw(seed, numbers, policies.shape[1])
    batch = []
    for i, size in enumerate(sizes):
        plan = Plan(boxes[i], labels[i], size, seed, int(numbers[i]))
        steps = []
        for stage, candidate in _stages(policies[i]):
            steps += plan.steps(space, stage, candidate, negative[i, stage], position[i, stage])
        batch.append(steps)
        boxes[i], labels[i] = plan.boxes, plan.labels
    return Plans(batch, boxes, labels)


def run_steps(
    images: Sequence[Images],
    batch: list[list[BoxStep]],
    fill: int,
    out: list[Images] | None = None,
) -> list[Images]:
    """Run the steps of `plan_boxes` on the pixels: one list of steps per image."""
    images = list(images)
    out = arrays.empty_like(images) if out is None else out
    _run_steps(arrays.read(images), out, batch, fill, "auto")
    return out


def _run_steps(
    source: Batch,
    out: list[Images],
    batch: list[list[BoxStep]],
    fill: int,
    backend: str,
) -> None:
    if choose_backend(backend, source.device[0]) == "kornia":
        from ddas_gpu.ops import fallback

        fallback.run_steps(source, target_of(source, out), batch, fill)
    else:
        run_chains(source, out, chains_of(batch, source.size_list(), fill), backend)


def _stages(policy: np.ndarray) -> Iterator[tuple[int, int]]:
    """Return (stage, candidate) without the stages that do nothing."""
    return ((stage, int(choice)) for stage, choice in enumerate(policy) if choice >= 0)


class Plan:
    """The steps of one image, stage by stage; its boxes are those after the stages so far."""

    def __init__(
        self, boxes: np.ndarray, labels: np.ndarray, size: tuple[int, int], seed: int, sample: int
    ) -> None:
        self.boxes, self.labels = boxes, labels
        self.height, self.width = size
        self.seed, self.sample = seed, np.array([sample])

    def steps(
        self, space: SearchSpace, stage: int, candidate: int, negative: bool, position: np.ndarray
    ) -> list[BoxStep]:
        """Return the steps of one stage; `negative` and `position` are drawn per image."""
        found, argument = find_any(space[candidate].op), space.argument(candidate)
        if negative:
            argument = negated(found, argument)
        if found.reach in (Reach.ONE_BOX, Reach.EACH_BOX):
            regions = self._regions(found.reach, stage)
            places = self._draw(stage, len(regions), first=2 * MOST_BOXES)
            return [
                BoxStep(found, argument, place, region)
                for region, place in zip(regions, places, strict=True)
            ]
        if found.reach is Reach.WITH_BOXES and found.matrix is not None:
            self._move_boxes(found.matrix(argument, self.height, self.width))
        return [BoxStep(found, argument, position, None)]

    def _draw(self, stage: int, count: int, first: int) -> np.ndarray:
        """Draw uint32 (count, 2) at stage numbers that only boxes use."""
        begin = 64 + stage * 4 * MOST_BOXES + first
        return draw(self.seed, self.sample, count, first=begin).position[0]

    def _regions(self, reach: Reach, stage: int) -> list[Region]:
        if len(self.boxes) == 0:
            return []
        draws = self._draw(stage, len(self.boxes), first=0)[:, 0]
        if reach is Reach.ONE_BOX:
            chosen = self.boxes[[int(draws[0]) * len(self.boxes) >> 32]]
        else:
            chosen = self.boxes[draws < BOX_PROBABILITY * 2**32]
        corners = np.concatenate([np.floor(chosen[:, :2]), np.ceil(chosen[:, 2:])], axis=1)
        corners = corners.clip(0, [self.width, self.height] * 2).astype(int)
        sides = corners[:, 2:] - corners[:, :2]
        regions = np.concatenate([corners[:, :2], sides], axis=1)[(sides > 0).all(axis=1)]
        return [(left, top, width, height) for left, top, width, height in regions.tolist()]

    def _move_boxes(self, matrix: AffineMatrix) -> None:
        moved, left = move_boxes(self.boxes, matrix, self.height, self.width)
        self.boxes, self.labels = moved[left], self.labels[left]


def move_boxes(
    boxes: np.ndarray, matrix: AffineMatrix, height: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the boxes (n, 4) after a gather with `matrix`, and which (n,) are still in the image.

    A new box is the bounding box of the transformed corners, clipped to the image.
    """
    a, b, c, d, e, f = matrix
    forward = np.linalg.inv([[a, b], [d, e]])
    x0, y0, x1, y1 = boxes.T
    corners = np.array([[x0, x1, x0, x1], [y0, y0, y1, y1]]) - np.reshape([c, f], (2, 1, 1))
    corners = np.einsum("ij,jkn->ikn", forward, corners)  # i, j: x and y; k: corner; n: box
    sides = np.array([width, height], float)[:, None]
    low = corners.min(axis=1).clip(0, sides)
    high = corners.max(axis=1).clip(0, sides)
    left = (high > low).all(axis=0)
    smallest = SMALLEST_SHARE * sides
    was_larger = np.array([x1 - x0, y1 - y0]) >= smallest
    low, high = np.where(
        was_larger & (high - low < smallest), _widened(low, high, smallest, sides), (low, high)
    )
    return np.concatenate([low, high]).T, left


def _widened(low: np.ndarray, high: np.ndarray, least: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return spans of length `least` around the same middle, shifted to lie inside 0 … `most`."""
    begin = ((low + high - least) / 2).clip(0, most - least)
    return np.array([begin, begin + least])


def chains_of(batch: list[list[BoxStep]], sizes: Sequence[tuple[int, int]], fill: int) -> Chains:
    """Return the steps of a batch as tasks for the kernels."""
    records: list[tuple] = []
    for steps, (height, width) in zip(batch, sizes, strict=True):
        for op, argument, position, region in steps:
            numbers = numbers_of(
                op, argument, *((region[3], region[2]) if region else (height, width))
            )
            ints = numbers.ints + (0,) * (6 - len(numbers.ints))
            place = region or (0, 0, 0, 0)
            records.append((op.primitive.code, numbers.factor, ints, tuple(position), place, fill))
    counts = np.array([len(steps) for steps in batch])
    return Chains(Records(np.array(records, TASK)), shares_of(counts, len(counts)))


def _check_boxes(
    boxes: Sequence[np.ndarray], labels: Sequence[np.ndarray], count: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    if len(boxes) != count or len(labels) != count:
        raise ValueError(f"{count} images, but boxes of {len(boxes)} and labels of {len(labels)}")
    boxes = [np.array(each, np.float64).reshape(-1, 4) for each in boxes]
    labels = [np.array(each) for each in labels]
    for i, (some, names) in enumerate(zip(boxes, labels, strict=True)):
        if len(names) != len(some):
            raise ValueError(f"image {i} has {len(some)} boxes, but {len(names)} labels")
        if len(some) > MOST_BOXES:
            raise ValueError(f"image {i} has {len(some)} boxes; at most {MOST_BOXES} are possible")
        if not np.isfinite(some).all() or (some[:, 2:] < some[:, :2]).any():
            raise ValueError(f"boxes of image {i} must be finite, x0 <= x1 and y0 <= y1: {some}")
    return boxes, labels
