"""What each anchor is to predict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ddas_gpu.detection.boxes import encode, overlaps

BACKGROUND, IGNORED = -1, -2

# Overlap from which an anchor belongs to a box, and below which it is background.
OBJECT, NOTHING = 0.5, 0.4


def match(
    anchors: torch.Tensor, boxes: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """anchors (A, 4), boxes (n, 4), labels (n,) -> classes (A,) and deltas (A, 4).

    An anchor is given the box it overlaps most, if by half; between 0.4 and 0.5 it is ignored.
    Every box gets the anchor that overlaps it most, however little: the small ones would
    otherwise never be learned. Of two boxes with the same best anchor the first gets it. A box
    without area gets none: padding in batches of boxes is left unnoticed.
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
    classes[best >= NOTHING] = IGNORED
    classes = torch.where(positive, labels[box], classes)
    deltas = encode(boxes[box], anchors)
    return classes, torch.where(positive[:, None], deltas, torch.zeros_like(deltas))


def targets_for(
    anchors: torch.Tensor,
    boxes: Sequence[np.ndarray] | torch.Tensor,
    labels: Sequence[np.ndarray] | torch.Tensor,
) -> dict[str, torch.Tensor]:
    """One version's targets for `detection_loss`: {"classes": (B, A), "deltas": (B, A, 4)}.

    Boxes and labels are arrays for each image, or padded tensors (B, M, 4) and (B, M).
    """
    matched = [
        match(anchors, torch.as_tensor(b).to(anchors), torch.as_tensor(c).to(anchors.device))
        for b, c in zip(boxes, labels, strict=True)
    ]
    classes, deltas = zip(*matched, strict=True)
    return {"classes": torch.stack(classes), "deltas": torch.stack(deltas)}
