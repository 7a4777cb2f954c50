"""Decoding predictions into boxes for each image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ddas_gpu.detection.boxes import areas, clip, decode
from ddas_gpu.detection.suppression import suppress

CANDIDATES = 1000  # (anchor, class) pairs of an image with the highest scores


@dataclass(frozen=True)
class Detections:
    """The detections in one image, by descending score."""

    boxes: np.ndarray  # (n, 4) float64, x0 y0 x1 y1 in pixels
    scores: np.ndarray  # (n,) float64
    labels: np.ndarray  # (n,) int64

    def scaled(self, x: float, y: float) -> Detections:
        """Return the same for an image x times as wide and y times as high."""
        return Detections(self.boxes * [x, y, x, y], self.scores, self.labels)


@torch.no_grad()
def detections(
    predictions: dict[str, torch.Tensor],
    anchors: torch.Tensor,
    sizes: list[tuple[int, int]],
    *,
    least_score: float = 0.05,
    most_overlap: float = 0.5,
    most: int = 100,
) -> list[Detections]:
    """Return at most `most` boxes for each image, clipped to its (height, width) in `sizes`."""
    found = []
    for logits, deltas, (height, width) in zip(
        predictions["logits"], predictions["deltas"], sizes, strict=True
    ):
        scores = logits.sigmoid().flatten()
        count = min(CANDIDATES, int((scores > least_score).sum()))
        scores, which = scores.topk(count)
        anchor, labels = which // logits.shape[-1], which % logits.shape[-1]
        boxes = clip(decode(deltas[anchor], anchors[anchor]), height, width)
        inside = areas(boxes) > 0
        boxes, scores, labels = boxes[inside], scores[inside], labels[inside]
        kept = suppress(boxes, scores, labels, most_overlap)[:most]
        found.append(
            Detections(
                boxes[kept].double().cpu().numpy(),
                scores[kept].double().cpu().numpy(),
                labels[kept].cpu().numpy(),
            )
        )
    return found
