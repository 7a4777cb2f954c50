"""What the search must know about the task that a network learns: classification or detection.

Algorithm 1 itself is the same for all tasks; it is in `ddas_gpu.search.algorithm`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from ddas_gpu.distributed.ranks import Ranks
    from ddas_gpu.distributed.shares import Share
    from ddas_gpu.search.settings import SearchSettings
    from ddas_gpu.space import SearchSpace


@dataclass(frozen=True)
class Versions:
    """A batch as it is, version 0, and under L̂ policies, ready for the network."""

    inputs: torch.Tensor  # (L̂ + 1, B, 3, H, W)
    targets: Any  # what `PolicyGradients` takes: for all versions, or a list with one for each
    unchanged: torch.Tensor  # (L̂,) bool: policies that left the batch as it is, to the byte


class Task(Protocol):
    """Batches, augmentation and loss of a task."""

    loss: Callable[[Any, Any], torch.Tensor]
    """loss(model(inputs), targets)"""

    def build_model(self) -> nn.Module:
        """A new network, on the device."""
        ...

    def clean_batch(
        self, indices: np.ndarray, generator: np.random.Generator, share: Share | None = None
    ) -> Any:
        """Training images under the standard transform up to the policy, with what is in them.

        With a share only that part of the batch of all `indices`.
        """
        ...

    def versions(
        self,
        batch: Any,
        policies: np.ndarray,
        space: SearchSpace,
        seed: int,
        generator: np.random.Generator,
        share: Share | None = None,
    ) -> Versions:
        """A clean batch and its version under each policy (L̂, N_o), through the whole transform.

        Signs and places come from the seed; what the standard transform draws after the policy,
        once for all versions, from the generator. `share` is that of the clean batch.
        """
        ...

    def validation_batch(
        self, indices: np.ndarray, generator: np.random.Generator
    ) -> tuple[torch.Tensor, Any]:
        """Inputs (B, 3, H, W) and targets of validation images, which no policy touches."""
        ...


def task_for(
    settings: SearchSettings, train: Any, validation: Any, device: torch.device, ranks: Ranks
) -> Task:
    """The task that these images are for."""
    if settings.data.data == "coco":
        from ddas_gpu.tasks.detection import Detection

        return Detection(settings, train, validation, device, ranks)
    from ddas_gpu.tasks.classification import Classification

    return Classification(settings, train, validation, device)
