"""Telling how a training is getting on: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from ddas_gpu.runs.progress import SECONDS_BETWEEN_LINES
from ddas_gpu.tasks.scores import Score


class TrainingProgress:
    """Loss, the test's score, p_tp, images a second and the time left."""

    def __init__(
        self,
        score: Score,
        done: int,
        total: int,
        steps_per_epoch: int,
        batch: int,
        stream: TextIO | None = None,
    ) -> None:
        self._score = score
        self._done = self._first = done
        self._total, self._steps_per_epoch, self._batch = total, steps_per_epoch, batch
        self._stream = sys.stderr if stream is None else stream
        self._start = self._last_line = time.monotonic()
        self._told = ""
        self._bar = None
        if self._stream.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=total, initial=done, unit="step", file=self._stream, dynamic_ncols=True
            )

    def step(self) -> None:
        """After every step."""
        self._done += 1
        if self._bar is not None:
            self._bar.update()
            return
        now = time.monotonic()
        if now - self._last_line >= SECONDS_BETWEEN_LINES and self._done % self._steps_per_epoch:
            self._line(f"step {self._done}/{self._total}{self._told}, {self._speed(now)}", now)

    def epoch(self, metrics: dict[str, Any]) -> None:
        """After every epoch."""
        tested, score = "", self._score
        if score.tested in metrics:
            this, best = (score.show(metrics[key]) for key in (score.tested, score.best))
            tested = f", {score.name} {this} (best {best})"
        p_tp = metrics["apply_probability"]
        self._told = f", loss {metrics['loss']:.3f}{tested}, p_tp {p_tp:.3f}"
        if self._bar is not None:
            self._bar.set_postfix_str(self._told.removeprefix(", "))
            return
        now = time.monotonic()
        epochs = self._total // self._steps_per_epoch
        self._line(f"epoch {metrics['epoch'] + 1}/{epochs}{self._told}, {self._speed(now)}", now)

    def _speed(self, now: float) -> str:
        steps = self._done - self._first
        seconds = max(now - self._start, 1e-9)
        left = seconds / max(steps, 1) * (self._total - self._done)
        return f"{steps * self._batch / seconds:.0f} images/s, {left:.0f} s left"

    def _line(self, text: str, now: float) -> None:
        self._last_line = now
        print(text, file=self._stream, flush=True)

    def __enter__(self) -> TrainingProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
