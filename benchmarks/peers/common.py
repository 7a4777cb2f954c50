"""Shared by the peers: the arguments of the ops, and threads over images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ddas_gpu.ops.table import OPS, Argument, PixelScale

LEVEL = 6
Call = Callable[[], object]


def argument_of(name: str) -> Argument:
    """Return the op's argument at the level of the benchmarks."""
    law = OPS[name].law
    return None if law is None else law(LEVEL, PixelScale())


def for_each(images: Sequence[Any], apply: Callable[[Any], object], threads: int) -> Call:
    """Return a call that applies a function to every image, on this thread or on several.

    The call returns all results.
    """

    def work(part: Sequence[Any]) -> list[object]:
        return [apply(image) for image in part]

    if threads == 1:
        return lambda: work(images)
    pool = ThreadPoolExecutor(threads)
    parts = [images[start::threads] for start in range(threads)]
    return lambda: list(pool.map(work, parts))
