"""Seconds by stage of a step, on a CPU or a GPU, without waiting for the GPU."""

from __future__ import annotations

import time
from typing import Protocol

import torch


class Stopwatch(Protocol):
    """Adds up the time between laps under the names of stages."""

    def lap(self, stage: str) -> None:
        """Count the time since the last lap for `stage`."""
        ...

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage."""
        ...


def stopwatch(device: torch.device) -> Stopwatch:
    """Return a stopwatch for work on this device."""
    return GpuStopwatch(device) if device.type == "cuda" else CpuStopwatch()


class CpuStopwatch:
    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self._seconds[stage] = self._seconds.get(stage, 0.0) + now - self._last
        self._last = now

    def seconds(self) -> dict[str, float]:
        return self._seconds


class GpuStopwatch:
    """Events in the stream: they are read after the step, when the device has passed them."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device)
        self._laps: list[tuple[str, torch.cuda.Event]] = [("", self._event())]

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def lap(self, stage: str) -> None:
        self._laps.append((stage, self._event()))

    def seconds(self) -> dict[str, float]:
        self._laps[-1][1].synchronize()
        found: dict[str, float] = {}
        for (_, before), (stage, after) in zip(self._laps, self._laps[1:], strict=False):
            found[stage] = found.get(stage, 0.0) + before.elapsed_time(after) / 1000
        return found
