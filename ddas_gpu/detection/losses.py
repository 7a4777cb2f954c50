"""RetinaNet's loss, a pure function of predictions and matched targets."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ddas_gpu.detection.matching import IGNORED

ALPHA, GAMMA = 0.25, 2.0  # the paper's: the weight of objects, and of what is not yet learned
BETA = 0.1  # where smooth L1 turns from square to straight


def detection_loss(
    predictions: dict[str, torch.Tensor], targets: dict[str, torch.Tensor]
) -> torch.Tensor:
    """The focal loss of the classes plus the smooth L1 loss of the boxes, per anchor of an object.

    predictions as of `RetinaNet`, targets as of `targets_for` or `counted_on_all_ranks`.
    """
    classes = targets["classes"]
    objects = classes >= 0
    deltas = predictions["deltas"][objects]
    of_boxes = F.smooth_l1_loss(
        deltas, targets["deltas"][objects].to(deltas), reduction="sum", beta=BETA
    )
    of_classes = focal_loss(predictions["logits"], classes)
    if "divisor" in targets:
        return (of_classes + of_boxes) / targets["divisor"].to(of_classes)
    return (of_classes + of_boxes) / objects.sum().clamp(min=1)


def focal_loss(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """The sum of the focal loss: logits (..., classes), classes (...) or BACKGROUND or IGNORED."""
    counted = (classes != IGNORED).unsqueeze(-1)
    # First as if no class were there, then put right for those that are: no one-hot targets,
    # which would be as large as the predictions.
    total = (_absent(logits) * counted).sum()
    objects = classes >= 0
    there = logits[objects].gather(-1, classes[objects].unsqueeze(-1))
    return total + (_present(there) - _absent(there)).sum()


def _present(logits: torch.Tensor) -> torch.Tensor:
    """-α (1 - p)^γ log p."""
    return ALPHA * torch.sigmoid(-logits) ** GAMMA * F.softplus(-logits)


def _absent(logits: torch.Tensor) -> torch.Tensor:
    """-(1 - α) p^γ log(1 - p)."""
    return (1 - ALPHA) * torch.sigmoid(logits) ** GAMMA * F.softplus(logits)
