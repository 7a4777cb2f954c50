"""What every feed of a DALI graph has: the batch with a given number, and its problems."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ddas_gpu.pipelines import draws
from ddas_gpu.pipelines.epochs import Epochs
from ddas_gpu.pipelines.policy_node import PolicyNode
from ddas_gpu.policy import PolicySchedule


class BaseFeed(ABC):
    """The batch with a given number, whoever asks when: a pure function of that number.

    `first` is the number, counted over all epochs, of the batch that DALI calls number 0.
    """

    images: Any  # what the samples are read from
    advice: str  # what to do about unreadable files

    def __init__(
        self,
        *,
        training: bool,
        seed: int = 0,
        schedule: PolicySchedule | None = None,
        total_epochs: int = 1,
    ) -> None:
        self.training, self.seed, self.first = training, seed, 0
        self.schedule, self.total_epochs = schedule, total_epochs
        self.epochs: Epochs | None = None  # unknown for records until DALI has opened them
        self._begin()

    def _begin(self) -> None:
        # What went wrong inside the graph. Functions in there must not raise: DALI would keep no
        # more than the text, and has been seen to abort the process. The pipeline raises it.
        self.problems: list[Exception] = []
        self.node = None if self.schedule is None else self.make_node()

    def from_batch(self, first: int) -> BaseFeed:
        """The same feed, beginning elsewhere."""
        feed = copy.copy(self)
        feed.first = first
        feed._begin()
        return feed

    def __call__(self, info: Any) -> tuple[Any, ...]:
        """For `fn.external_source`; `info` is DALI's BatchInfo."""
        epoch, place = self.epochs.locate(self.first + info.iteration)
        batch, order = self.make(epoch, self.epochs.batch(epoch, place))
        if self.node is not None:
            self.node.orders.append(order)
        return tuple(batch[name] for name in self.names)

    def policies(self, epoch: int, samples: np.ndarray) -> np.ndarray:
        """(B, N_o) candidate indices."""
        return draws.draw_policies(self.schedule, self.total_epochs, self.seed, epoch, samples)

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """What the host gives the graph for a batch."""

    @property
    @abstractmethod
    def files(self) -> Sequence[Path] | None:
        """The file of every sample, where each has its own."""

    @abstractmethod
    def make(self, epoch: int, samples: np.ndarray) -> tuple[dict[str, Any], Any]:
        """Everything in `names`, and the order for the policy node."""

    @abstractmethod
    def make_node(self) -> PolicyNode: ...

    @abstractmethod
    def define(self, gpu: bool, reader: dict[str, Any]) -> tuple[Any, ...]:
        """The outputs of the DALI graph. `reader` has the options of a reader of records."""

    @abstractmethod
    def pack(self, outputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs of the graph as a batch for a model."""


def paths_for_dali(files: Sequence[Path]) -> list[np.ndarray]:
    return [np.frombuffer(os.fsencode(file), np.uint8) for file in files]
