"""What all transforms share: a schedule, the present epoch, and what is drawn in it."""

from __future__ import annotations

import copy
import zlib
from typing import Any

import numpy as np
import torch

from ddas_gpu import streams
from ddas_gpu.policy import PolicyLike, PolicySchedule, open_policy
from ddas_gpu.streams import whole

DRAWS = ("sample", "random")


class EpochPolicy:
    """A schedule that follows the epochs of a training.

    The epoch lies in shared memory: worker processes and deep copies see it change.
    """

    def __init__(self, schedule: PolicyLike, epochs: int, seed: int) -> None:
        self.schedule = open_policy(schedule)
        self.epochs, self.seed = whole("epochs", epochs, 1), whole("seed", seed)
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self._scaled: dict[int, PolicySchedule] = {}  # by the shorter side of the images

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.copy(self)  # a copy of a data set must follow the same epochs

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, counted from 0, also in worker processes. Call it before each epoch.

        Beyond the last of `epochs` its probabilities stay.
        """
        self._epoch.fill_(whole("epoch", epoch))

    def for_size(self, height: int, width: int) -> PolicySchedule:
        """Return the schedule with shifts and holes for images of this size."""
        side = min(height, width)
        if side not in self._scaled:
            self._scaled[side] = self.schedule.scaled(side)
        return self._scaled[side]

    def draw(self, samples: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the policy of each sample, and the seed for `augment`."""
        epoch = self.epoch
        policies = self.schedule.draw(epoch, self.epochs, self.seed, samples)
        return policies, streams.sign_key(self.seed, epoch)


class SamplePolicy(EpochPolicy):
    """A policy for one sample at a time."""

    def __init__(
        self,
        schedule: PolicyLike,
        epochs: int,
        seed: int = 0,
        *,
        draw: str = "sample",
    ) -> None:
        if draw not in DRAWS:
            raise ValueError(f"draw is one of {', '.join(DRAWS)}, not {draw!r}")
        super().__init__(schedule, epochs, seed)
        self._random = draw == "random"

    def sample_of(self, pixels: Any, index: int | None) -> np.ndarray:
        """Return the number that the draws for an image depend on, (1,)."""
        if self._random:
            index = int(torch.randint(2**62, ()))
        elif index is None:
            host = pixels.cpu().numpy() if isinstance(pixels, torch.Tensor) else pixels
            index = zlib.crc32(np.ascontiguousarray(host).data)
        return np.array([index])
