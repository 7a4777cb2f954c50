"""Progress of a run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

SECONDS_BETWEEN_LINES = 10.0
SHORTEST_BAR = 10  # columns
BAR = "{percentage:3.0f}%|{bar}| {n}/{total} [{elapsed}<{remaining}]{postfix}"


class Progress:
    """Steps done, the job's numbers, images per second and the time left."""

    def __init__(
        self,
        done: int,
        total: int,
        steps_per_epoch: int,
        images_until: Callable[[int], int],
        stream: TextIO | None = None,
    ) -> None:
        self._done = self._first = done
        self._total, self._steps_per_epoch = total, steps_per_epoch
        self._images_until = images_until
        self._stream = sys.stderr if stream is None else stream
        self._start = self._last_line = time.monotonic()
        self._bar = None
        if self._stream.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                total=total,
                initial=done,
                file=self._stream,
                ncols=columns_of(self._stream),
                bar_format=BAR,
            )

    def update(self, status: str) -> None:
        """Show one more step, with the job's latest numbers."""
        self._done += 1
        now = time.monotonic()
        images = self._images_until(self._done) - self._images_until(self._first)
        speed = images / max(now - self._start, 1e-9)
        parts = [*([status] if status else []), f"{speed:.0f} images/s incl. augmented"]
        if self._bar is not None:
            self._bar.ncols = columns_of(self._stream)  # the window may have changed
            room = self._bar.ncols - self._fixed_columns()
            self._bar.set_postfix_str(fitting(", ".join(parts), room), refresh=False)
            self._bar.update()
            return
        end_of_epoch = self._done % self._steps_per_epoch == 0
        if not end_of_epoch and now - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        epoch = (self._done - 1) // self._steps_per_epoch + 1
        epochs = self._total // self._steps_per_epoch
        left = (self._images_until(self._total) - self._images_until(self._done)) / speed
        print(
            f"epoch {epoch}/{epochs}, step {self._done}/{self._total}: {', '.join(parts)}, "
            f"{left:.0f} s left",
            file=self._stream,
            flush=True,
        )

    def _fixed_columns(self) -> int:
        """Return the columns that are not for the numbers: the counts and a visible bar."""
        counts = f"100%|| {self._total}/{self._total} [00:00:00<00:00:00], "
        return len(counts) + SHORTEST_BAR

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def columns_of(stream: TextIO) -> int:
    """Return the width of a terminal: $COLUMNS, or what the terminal says, or 80."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):  # not a real terminal
        return 80


def fitting(text: str, room: int) -> str:
    """Return as many of the comma-separated parts, from the first on, as fit into `room`.

    >>> fitting("loss 1.250, p_tp 0.345, top Rotate 4 1.20×", 25)
    'loss 1.250, p_tp 0.345'
    """
    while text and len(text) > room:
        text = text.rpartition(", ")[0]
    return text
