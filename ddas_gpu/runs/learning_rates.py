"""SGD's learning rate over a run: the same rule in the search and in training."""

from __future__ import annotations

import math
from typing import Protocol


class RateSettings(Protocol):
    lr: float
    lr_schedule: str
    lr_steps: tuple[int, ...]


def learning_rate(settings: RateSettings, step: int, total: int, an_epoch: int) -> float:
    """The rate of a step, of `total` steps with `an_epoch` of them in an epoch.

    "cosine" goes from --lr to 0 along a cosine; "step" falls by a tenth at each of --lr-steps.
    """
    if settings.lr_schedule == "cosine":
        return 0.5 * settings.lr * (1 + math.cos(math.pi * step / total))
    return settings.lr * 0.1 ** sum(step // an_epoch >= fall for fall in settings.lr_steps)
