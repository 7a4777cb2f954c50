"""SGD's learning rate over a run: the same rule in the search and in training."""

from __future__ import annotations

import math
from typing import Protocol


class RateSettings(Protocol):
    @property
    def lr(self) -> float: ...
    @property
    def lr_schedule(self) -> str: ...
    @property
    def lr_steps(self) -> tuple[int, ...]: ...


def learning_rate(settings: RateSettings, step: int, total: int, steps_per_epoch: int) -> float:
    """Return the learning rate of a step, one of `total`.

    "cosine" goes from --lr to 0 along a cosine; "step" multiplies by 0.1 at each of --lr-steps.
    """
    if settings.lr_schedule == "cosine":
        return 0.5 * settings.lr * (1 + math.cos(math.pi * step / total))
    return settings.lr * 0.1 ** sum(step // steps_per_epoch >= epoch for epoch in settings.lr_steps)
