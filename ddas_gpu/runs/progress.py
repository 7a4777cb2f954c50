"""Progress of a run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Steps done, the job's numbers, images per second and the time left."""

    def __init__(
        self,
        done: int,
        total: int,
        steps_per_epoch: int,
        images_per_step: int,
        stream: TextIO | None = None,
    ) -> None:
        self._done = self._first = done
        self._total, self._steps_per_epoch = total, steps_per_epoch
        self._images_per_step = images_per_step
        self._stream = sys.stderr if stream is None else stream
        self._start = self._last_line = time.monotonic()
        self._bar = None
        if self._stream.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=total, initial=done, unit="step", file=self._stream, dynamic_ncols=True
            )

    def update(self, status: str) -> None:
        """Show one more step, with the job's latest numbers."""
        self._done += 1
        now = time.monotonic()
        steps, seconds = self._done - self._first, max(now - self._start, 1e-9)
        numbers = [status] if status else []
        text = ", ".join([*numbers, f"{steps * self._images_per_step / seconds:.0f} images/s"])
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update()
            return
        end_of_epoch = self._done % self._steps_per_epoch == 0
        if not end_of_epoch and now - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        epoch = (self._done - 1) // self._steps_per_epoch + 1
        epochs = self._total // self._steps_per_epoch
        left = seconds / steps * (self._total - self._done)
        print(
            f"epoch {epoch}/{epochs}, step {self._done}/{self._total}: {text}, {left:.0f} s left",
            file=self._stream,
            flush=True,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
