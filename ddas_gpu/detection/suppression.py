"""Non-maximum suppression: of boxes that mean the same thing, the surest stays."""

from __future__ import annotations

import torch

from ddas_gpu.detection.boxes import overlaps


def suppress(
    boxes: torch.Tensor, scores: torch.Tensor, labels: torch.Tensor, most: float = 0.5
) -> torch.Tensor:
    """Indices of the boxes that stay, surest first.

    Greedy: a box goes if a surer box of its class stays and overlaps it by more than `most`.
    Instead of one box at a time, all are decided at once from the last round's decisions, until
    nothing changes. The surest box is right from the first round on, and one more in every round,
    so the end is the greedy result; in practice it takes a few rounds.
    """
    order = scores.argsort(descending=True, stable=True)
    boxes, labels = boxes[order], labels[order]
    rivals = (overlaps(boxes, boxes) > most) & (labels[:, None] == labels)
    surer = rivals.triu(1)  # [i, j]: i is surer than j and would suppress it
    stays = torch.ones(len(boxes), dtype=torch.bool, device=boxes.device)
    while True:
        now = ~(surer & stays[:, None]).any(0)
        if torch.equal(now, stays):
            return order[stays]
        stays = now
