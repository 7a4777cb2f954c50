"""Non-maximum suppression."""

from __future__ import annotations

import torch

from ddas_gpu.detection.boxes import overlaps


def suppress(
    boxes: torch.Tensor, scores: torch.Tensor, labels: torch.Tensor, most: float = 0.5
) -> torch.Tensor:
    """Return the indices of the boxes that are kept, by descending score.

    Greedy: a box is removed if a kept box of its class has a higher score and an IoU above `most`.
    Instead of one box at a time, every iteration decides all boxes from the previous iteration's
    decisions, until nothing changes. The box of rank r is final after r + 1 iterations, so the
    result is the greedy one; in practice a few iterations suffice.
    """
    order = scores.argsort(descending=True, stable=True)
    boxes, labels = boxes[order], labels[order]
    conflicts = (overlaps(boxes, boxes) > most) & (labels[:, None] == labels)
    suppresses = conflicts.triu(1)  # [i, j]: i has the higher score and suppresses j if kept
    kept = torch.ones(len(boxes), dtype=torch.bool, device=boxes.device)
    while True:
        now = ~(suppresses & kept[:, None]).any(0)
        if torch.equal(now, kept):
            return order[kept]
        kept = now
