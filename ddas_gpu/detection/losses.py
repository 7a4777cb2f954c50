"""RetinaNet's loss of predictions and matched targets."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ddas_gpu.detection.matching import IGNORED

ALPHA, GAMMA = 0.25, 2.0  # RetinaNet's: the weight of positives, and the focusing parameter
BETA = 0.1  # where smooth L1 changes from quadratic to linear


def detection_loss(
    predictions: dict[str, torch.Tensor], targets: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Return the focal loss of classes plus the smooth L1 loss of boxes, per positive anchor.

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
    """Return the summed focal loss of logits (..., C) and classes (...), which may be negative."""
    counted = (classes != IGNORED).unsqueeze(-1)
    # Sum the negatives, then correct the positives: no one-hot tensor the size of the predictions.
    total = (_negative(logits) * counted).sum()
    objects = classes >= 0
    positive = logits[objects].gather(-1, classes[objects].unsqueeze(-1))
    return total + (_positive(positive) - _negative(positive)).sum()


def _positive(logits: torch.Tensor) -> torch.Tensor:
    """-α (1 - p)^γ log p."""
    return ALPHA * torch.sigmoid(-logits) ** GAMMA * F.softplus(-logits)


def _negative(logits: torch.Tensor) -> torch.Tensor:
    """-(1 - α) p^γ log(1 - p)."""
    return (1 - ALPHA) * torch.sigmoid(logits) ** GAMMA * F.softplus(logits)
