"""What training must know about the task that a network learns: classification or detection.

The loop itself is the same for all tasks; it is in `ddas_gpu.train.loop`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from ddas_gpu.distributed.ranks import ALONE, Ranks
from ddas_gpu.tasks.facts import Score

if TYPE_CHECKING:
    from ddas_gpu.data import DataSet
    from ddas_gpu.detection import DetectionSet
    from ddas_gpu.policy import PolicySchedule
    from ddas_gpu.train.settings import TrainSettings


class TrainingTask(Protocol):
    """Network, batches, loss and test of a task."""

    score: Score
    """The number of `test` that networks are ranked by."""
    measured: tuple[str, ...]
    """What there is to measure of a training batch beside its loss."""
    class_names: tuple[str, ...]
    steps_per_epoch: int

    def build_model(self) -> nn.Module:
        """A new network, on the device."""
        ...

    def batch(self, step: int) -> tuple[torch.Tensor, Any]:
        """Inputs (B, 3, H, W) and targets of this rank's part of a step, counted over all epochs.

        A pure function of its number, so that a run resumes anywhere.
        """
        ...

    def loss(self, outputs: Any, targets: Any) -> torch.Tensor:
        """The loss of a training batch, of outputs = model(inputs)."""
        ...

    def measure(self, outputs: Any, targets: Any) -> list[torch.Tensor]:
        """The numbers of `measured`, float64, means over the batch."""
        ...

    def test(self, model: nn.Module, weights: dict[str, torch.Tensor]) -> dict[str, float]:
        """How well `model` does with `weights`: test_loss, the score and more for metrics.jsonl.

        The model's own weights and its mode stay as they are. All ranks test together.
        """
        ...

    def fingerprints(self) -> list[int]:
        """Numbers that tell these training and test images from others."""
        ...

    def samples(self) -> DataSet | DetectionSet:
        """Training images for the report."""
        ...


def training_task(
    settings: TrainSettings,
    schedule: PolicySchedule | None,
    device: torch.device,
    ranks: Ranks = ALONE,
) -> TrainingTask:
    """The task that the data is for."""
    if settings.data.data == "coco":
        from ddas_gpu.tasks.training_detection import DetectionTraining

        return DetectionTraining(settings, schedule, device, ranks)
    from ddas_gpu.tasks.training_classification import ClassificationTraining

    return ClassificationTraining(settings, schedule, device, ranks)
