"""The boxes of a batch in the forms that other people's detectors take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from ddas_gpu.pipelines.box_feed import DetectionBatch

STYLES = ("torchvision", "detr")


def as_targets(batch: DetectionBatch, style: str) -> list[dict[str, torch.Tensor]]:
    """Return the targets of each image; see `DetectionBatch.as_targets`."""
    if style not in STYLES:
        raise ValueError(f"targets are for one of {', '.join(STYLES)}, not {style!r}")
    targets = []
    for place, count in enumerate(batch.counts.tolist()):
        boxes, labels = batch.boxes[place, :count], batch.category_ids[place, :count]
        image_id, size = batch.image_ids[place : place + 1], batch.sizes[place]
        if style == "torchvision":
            targets.append({"boxes": boxes, "labels": labels, "image_id": image_id})
            continue
        corner, far = boxes[:, :2], boxes[:, 2:]
        relative = torch.cat([(corner + far) / 2, far - corner], dim=1) / size.flip(0).repeat(2)
        targets.append(
            {
                "boxes": relative,
                "labels": labels,  # as the original calls them
                "class_labels": labels,  # as Hugging Face calls them
                "image_id": image_id,
                "size": size,
            }
        )
    return targets
