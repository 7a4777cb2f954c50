"""Telling how a search is getting on: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

import numpy as np

from ddas_gpu.space import SearchSpace

SECONDS_BETWEEN_LINES = 10.0


def top_candidates(space: SearchSpace, probabilities: np.ndarray, count: int) -> str:
    """The most probable candidates; negate the probabilities for the least probable."""
    order = np.argsort(-probabilities, kind="stable")[:count]
    return ", ".join(f"{space[i]} {abs(probabilities[i]) * len(space):.2f}×" for i in order)


class Progress:
    """Loss, p_tp, the top ops, images a second and the time left."""

    def __init__(
        self,
        space: SearchSpace,
        done: int,
        total: int,
        steps_per_epoch: int,
        stream: TextIO | None = None,
    ) -> None:
        self._space, self._total, self._steps_per_epoch = space, total, steps_per_epoch
        self._stream = sys.stderr if stream is None else stream
        self._start = self._last_line = time.monotonic()
        self._first, self._images = done, 0
        self._bar = None
        if self._stream.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=total, initial=done, unit="step", file=self._stream, dynamic_ncols=True
            )

    def update(self, metrics: dict[str, Any], probabilities: np.ndarray) -> None:
        self._images += metrics["images"]
        now = time.monotonic()
        speed = self._images / max(now - self._start, 1e-9)
        told = (
            f"loss {metrics['loss']:.3f}, p_tp {metrics['apply_probability']:.3f}, "
            f"top {top_candidates(self._space, probabilities, 2)}, {speed:.0f} images/s"
        )
        if self._bar is not None:
            self._bar.set_postfix_str(told, refresh=False)
            self._bar.update()
            return
        done = metrics["step"] + 1
        if done % self._steps_per_epoch and now - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        left = (now - self._start) / (done - self._first) * (self._total - done)
        print(
            f"epoch {metrics['epoch'] + 1}, step {done}/{self._total}: {told}, {left:.0f} s left",
            file=self._stream,
            flush=True,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
