"""What a detector learns: the boxes that its anchors are assigned, and the loss of its outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional as F

from ddas_gpu.detection.boxes import encode, overlaps

BACKGROUND, IGNORED = -1, -2

# IoU from which an anchor is positive, and below which it is background.
OBJECT, NOTHING = 0.5, 0.4


def match(
    anchors: torch.Tensor, boxes: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Match anchors (A, 4) to boxes (n, 4) with labels (n,); return classes (A,), deltas (A, 4).

    An anchor takes the box of highest IoU if that is at least 0.5; from 0.4 to 0.5 it is ignored.
    Every box also gets its own anchor of highest IoU, however low, so that small boxes are
    learned. If two boxes have the same best anchor, the first gets it. A box without area gets
    none, so padding in batches of boxes has no effect.
    """
    classes = anchors.new_full((len(anchors),), BACKGROUND, dtype=torch.int64)
    if len(boxes) == 0:
        return classes, torch.zeros_like(anchors)
    overlap = overlaps(anchors, boxes)
    best, box = overlap.max(1)
    best_of_box, anchor_of_box = overlap.max(0)
    numbers = torch.arange(len(boxes), device=boxes.device)
    nobody = len(boxes)
    claimed = torch.where(best_of_box > 0, numbers, nobody)
    owner = torch.full_like(box, nobody).scatter_reduce(0, anchor_of_box, claimed, "amin")
    forced = owner < nobody
    box = torch.where(forced, owner, box)
    positive = forced | (best >= OBJECT)
    classes = classes.masked_fill(best >= NOTHING, IGNORED)
    classes = torch.where(positive, labels[box], classes)
    deltas = encode(boxes[box], anchors)
    return classes, torch.where(positive[:, None], deltas, torch.zeros_like(deltas))


def targets_for(
    anchors: torch.Tensor,
    boxes: Sequence[np.ndarray] | torch.Tensor,
    labels: Sequence[np.ndarray] | torch.Tensor,
) -> dict[str, torch.Tensor]:
    """Return targets for `detection_loss`: {"classes": (B, A), "deltas": (B, A, 4)}.

    Boxes and labels are one array per image, or padded tensors (B, M, 4) and (B, M).
    """
    matched = [
        match(anchors, torch.as_tensor(b).to(anchors), torch.as_tensor(c).to(anchors.device))
        for b, c in zip(boxes, labels, strict=True)
    ]
    classes, deltas = zip(*matched, strict=True)
    return {"classes": torch.stack(classes), "deltas": torch.stack(deltas)}


ALPHA, GAMMA = 0.25, 2.0  # RetinaNet's: the weight of positives, and the focusing parameter
BETA = 0.1  # where smooth L1 changes from quadratic to linear


def detection_loss(
    predictions: dict[str, torch.Tensor], targets: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Return the focal loss of classes plus the smooth L1 loss of boxes, per positive anchor.

    predictions as of `RetinaNet`, targets as of `targets_for` or `counted_on_all_ranks`. The terms
    of all anchors are computed, then chosen from: to index with them would wait for the device.
    """
    classes = targets["classes"]
    objects = classes >= 0
    deltas = predictions["deltas"]
    errors = F.smooth_l1_loss(deltas, targets["deltas"].to(deltas), reduction="none", beta=BETA)
    of_boxes = torch.where(objects, errors.sum(-1), 0).sum()
    of_classes = focal_loss(predictions["logits"], classes)
    if "divisor" in targets:
        return (of_classes + of_boxes) / targets["divisor"].to(of_classes)
    return (of_classes + of_boxes) / objects.sum().clamp(min=1)


def focal_loss(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Return the summed focal loss of logits (..., C) and classes (...), which may be negative."""
    counted = (classes != IGNORED).unsqueeze(-1)
    # Sum the negatives, then correct the positives: no one-hot tensor the size of the predictions.
    total = (_negative(logits) * counted).sum()
    chosen = logits.gather(-1, classes.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return total + torch.where(classes >= 0, _positive(chosen) - _negative(chosen), 0).sum()


def _positive(logits: torch.Tensor) -> torch.Tensor:
    """-α (1 - p)^γ log p."""
    return ALPHA * torch.sigmoid(-logits) ** GAMMA * F.softplus(-logits)


def _negative(logits: torch.Tensor) -> torch.Tensor:
    """-(1 - α) p^γ log(1 - p)."""
    return (1 - ALPHA) * torch.sigmoid(logits) ** GAMMA * F.softplus(logits)
