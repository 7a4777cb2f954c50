"""How well a detector does on the test images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from ddas_gpu.data.coco import Annotated
from ddas_gpu.detection.losses import detection_loss, targets_for
from ddas_gpu.detection.precision import average_precision
from ddas_gpu.detection.predictions import Detections, detections
from ddas_gpu.distributed.ranks import ALONE, Ranks
from ddas_gpu.models.retinanet import anchors_for
from ddas_gpu.tasks.evaluation import testing

if TYPE_CHECKING:
    from ddas_gpu.pipelines import DetectionBatch


def evaluate_detector(
    model: nn.Module,
    batches: Iterable[DetectionBatch],
    truth: Sequence[Annotated],
    class_names: Sequence[str],
    *,
    anchor_scale: float = 4.0,
    weights: dict[str, torch.Tensor] | None = None,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Return the mean loss and COCO's precisions: test_mAP, test_mAP50, …

    Boxes are compared in pixels of the original images.
    batches: every image of `truth` once, on one of the ranks. The precision for a size that no box
    has is left out.
    """
    found: dict[int, Detections] = {}
    sums = torch.zeros(2, dtype=torch.float64)  # of the losses, and of the images
    with testing(model, weights) as outputs_of:
        for batch in batches:
            predictions = {name: p.float() for name, p in outputs_of(batch.images).items()}
            height, width = batch.images.shape[-2:]
            anchors = anchors_for(height, width, anchor_scale).to(batch.images.device)
            targets = targets_for(anchors, batch.boxes, batch.labels)
            loss = detection_loss(predictions, targets).item() * len(batch.ids)
            sums += torch.tensor([loss, len(batch.ids)], dtype=torch.float64)
            sizes = batch.sizes.tolist()
            in_batch = detections(predictions, anchors, sizes)
            for index, (height, width), one in zip(
                batch.ids.tolist(), sizes, in_batch, strict=True
            ):
                image = truth[index]
                found[index] = one.scaled(image.width / width, image.height / height)
    loss, count = ranks.sum(sums).tolist()
    precisions = {}
    on_all_ranks = ranks.gather(found)
    if ranks.first:
        everything = {index: one for part in on_all_ranks for index, one in part.items()}
        in_order = [everything[index] for index in range(len(truth))]
        precisions = average_precision(truth, in_order, class_names)
    precisions = ranks.gather(precisions)[0]
    return {
        "test_loss": loss / count,
        **{
            f"test_{name.replace(' ', '_')}": value
            for name, value in precisions.items()
            if math.isfinite(value)
        },
    }
