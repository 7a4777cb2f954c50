"""SGD's learning rate over a run: the same rule in the search and in training."""

from __future__ import annotations

import math
from collections.abc import Sequence


def learning_rate(
    start: float, schedule: str, falls: Sequence[int], step: int, total: int, an_epoch: int
) -> float:
    """The rate of a step, of `total` steps with `an_epoch` of them in an epoch.

    schedule: "cosine" goes from `start` to 0 along a cosine; "step" falls by a tenth at each of the
    epochs in `falls`.
    """
    if schedule == "cosine":
        return 0.5 * start * (1 + math.cos(math.pi * step / total))
    return start * 0.1 ** sum(step // an_epoch >= fall for fall in falls)
