"""The policy inside a DALI graph: the op bank on every batch that comes by."""

from __future__ import annotations

import traceback
from collections import deque
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ddas_gpu.ops import arrays, augment
from ddas_gpu.ops.box_policies import BoxStep, run_steps
from ddas_gpu.space import SearchSpace


class DrawnPolicies(NamedTuple):
    """The policies of a batch."""

    policies: np.ndarray  # (B, N_o) candidate indices, -1 for nothing
    key: int  # with `samples` the randomness inside the ops
    samples: np.ndarray  # (B,)


class Problems(list[Exception]):
    """Errors inside a DALI graph, for the pipeline to raise.

    Functions in the graph must not raise: DALI keeps only the text of an exception, and has been
    seen to abort the process. Tracebacks are kept as text: their frames hold the pipeline, which
    holds this, and through DALI's C++ side the garbage collector does not see such a cycle.
    """

    def append(self, problem: Exception) -> None:
        text = "".join(traceback.format_exception(problem))
        problem.__cause__, problem.__context__ = Inside(text), None
        super().append(problem.with_traceback(None))

    def raise_first(self) -> NoReturn:
        """Raise the first error, and keep its like for the next call."""
        first = self[0]
        again = type(first).__new__(type(first), *first.args)
        again.__dict__.update(first.__dict__)
        again.__cause__ = first.__cause__
        self[0] = again
        raise first


class Inside(Exception):
    """Shows the traceback of an error inside the graph."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class PolicyNode:
    """The function of `fn.python_function`: a list of uint8 HWC arrays in, the same out.

    The policies drawn for each batch wait in a queue. DALI calls the source that fills the queue
    some batches ahead, but source and node both once per batch and in the order of the batches.
    (An input of the node would do the same on the CPU; on the GPU the node would have to wait for
    it to be copied back.)
    """

    def __init__(self, space: SearchSpace, problems: Problems, drawn: deque[Any]) -> None:
        self.space, self.problems, self.drawn = space, problems, drawn
        self._memory: np.ndarray | None = None
        self._rows: list[np.ndarray] = []

    def __call__(self, images: list[Any]) -> list[Any]:
        """Augment a batch; on an error record it and return the images unchanged, see `Feed`."""
        try:
            return self.augment(images, self.drawn.popleft())
        except Exception as problem:
            self.problems.append(problem)
            return images

    def augment(self, images: list[Any], drawn: Any) -> list[Any]:
        """Return the images under the policies that the feed has drawn, `DrawnPolicies`."""
        policies, key, samples = drawn
        batch = as_one_array(images)
        if isinstance(batch, np.ndarray):
            augment(batch, policies, self.space, key, samples=samples, out=self._out(batch))
            return self._rows
        return list(augment(batch, policies, self.space, key, samples=samples))

    def _out(self, batch: np.ndarray) -> np.ndarray:
        """Return memory for the result. DALI has copied the last one when it calls again."""
        if self._memory is None or self._memory.shape != batch.shape:
            self._memory = np.empty_like(batch)
            self._rows = list(self._memory)
        return self._memory


class BoxPolicyNode(PolicyNode):
    """The same for images with boxes.

    The boxes were moved on the host, when the policies were drawn; the steps say what is left to
    do to each image's pixels.
    """

    def augment(self, images: list[Any], drawn: list[list[BoxStep]]) -> list[Any]:
        return run_steps(images, drawn, self.space.fill, self._room(images))

    def _room(self, images: list[Any]) -> list[np.ndarray] | None:
        """Return memory for images of any sizes, reused: new memory costs as much as an op.

        DALI has copied the last result when it calls again.
        """
        if not isinstance(images[0], np.ndarray):
            return None
        ends = np.cumsum([image.nbytes for image in images])
        if self._memory is None or len(self._memory) < ends[-1]:
            self._memory = np.empty(ends[-1], np.uint8)
        parts = np.split(self._memory[: ends[-1]], ends[:-1])
        return [part.reshape(image.shape) for part, image in zip(parts, images, strict=True)]


def as_one_array(images: list[Any]) -> Any:
    """Return (B, H, W, 3) without a copy where images lie behind each other in memory.

    DALI's batches of one size do, on the CPU as numpy and on a GPU as CuPy arrays. One array is
    checked and described once, not image by image.
    """
    first, kind = images[0], arrays.kind_of(images[0])
    if kind is None:
        return images
    height, width, channels = first.shape
    size = height * width * channels
    if tuple(kind.strides(first)) != (width * channels, channels, 1):
        return images
    addresses = np.array([kind.address(image) for image in images])
    alike = all(image.shape == first.shape for image in images)
    if not alike or (np.diff(addresses) != size).any():
        return images
    shape = (len(images), height, width, channels)
    if kind.library == "cupy":
        return type(first)(shape, np.uint8, memptr=first.data)
    strides = (size, *first.strides)
    return np.lib.stride_tricks.as_strided(first, shape, strides, writeable=False)
