"""The policy as a transform of images with boxes, for detectors with their own DataLoader."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ddas_gpu.transforms import image_kinds as kinds
from ddas_gpu.transforms.drawing import plan_for
from ddas_gpu.transforms.epochs import SamplePolicy


class BoxPolicyTransform(SamplePolicy):
    """Augments one image with its boxes; the twin of `PolicyTransform`.

    Images are those of `PolicyTransform`. Boxes are (n, 4), x0 y0 x1 y1 in pixels, or
    `tv_tensors.BoundingBoxes` of any format; labels have n entries. Boxes that leave the image are
    dropped, with their labels. Draws are those of `detection_pipeline` for the sample `index`.

    >>> transform = BoxPolicyTransform("policy.json", epochs=150)
    >>> image, boxes = np.zeros((60, 80, 3), np.uint8), np.array([[10.0, 10, 40, 50]])
    >>> image, boxes, labels = transform(image, boxes, np.array([3]), index=5)
    >>> image.shape, boxes.shape
    ((60, 80, 3), (1, 4))
    """

    def __call__(
        self, image: Any, boxes: Any, labels: Any, *, index: int | None = None
    ) -> tuple[Any, Any, Any]:
        pixels = kinds.to_pixels(image)
        corners = kinds.corners_of(boxes)
        if len(labels) != len(corners):
            raise ValueError(f"{len(corners)} boxes, but {len(labels)} labels")
        size = pixels.shape[0], pixels.shape[1]
        if kinds.is_boxes(boxes):
            kinds.require_size(boxes, size)
        sample = self.sample_of(pixels, index)
        plan = plan_for(self.for_size(*size), size, corners, self.draw(sample), sample)
        return (
            kinds.from_pixels(plan.on_pixels(pixels), image),
            kinds.boxes_like(plan.boxes, boxes),
            _chosen(labels, plan.kept),
        )


def _chosen(labels: Any, kept: np.ndarray) -> Any:
    if isinstance(labels, torch.Tensor):
        return labels[torch.from_numpy(kept).to(labels.device)]
    if isinstance(labels, np.ndarray):
        return labels[kept]
    return [labels[place] for place in kept]
