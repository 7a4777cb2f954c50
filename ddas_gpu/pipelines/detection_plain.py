"""Batches for a detector without DALI: Pillow and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ddas_gpu.data.coco import Annotated
from ddas_gpu.detection.batches import network_inputs
from ddas_gpu.detection.transforms import resized_image
from ddas_gpu.ops.box_policies import BoxStep, run_steps
from ddas_gpu.pipelines.detection_feed import TARGETS, DetectionBatch
from ddas_gpu.pipelines.plain import OnDemand


class PlainDetections(OnDemand):
    """Images with boxes; these and all draws are the same as from the DALI graph."""

    def _finished(
        self, samples: np.ndarray, batch: dict[str, Any], order: list[list[BoxStep]] | None
    ) -> DetectionBatch:
        chosen = [self._feed.images[sample] for sample in samples]
        images = list(self._pool.map(_read, chosen, batch["scaled"].astype(int)))
        if order is not None:
            images = run_steps(images, order, self._feed.schedule.space.fill)
        recipe = self._feed.recipe
        inputs = network_inputs(images, "cpu", recipe.mean, recipe.deviation)
        if recipe.layout == "NHWC":
            inputs = inputs.permute(0, 2, 3, 1)
        targets = (torch.from_numpy(batch[name]) for name in TARGETS)
        inputs = inputs.to(getattr(torch, recipe.dtype)).contiguous()
        return DetectionBatch(inputs, *targets)


def _read(annotated: Annotated, scaled: np.ndarray) -> np.ndarray:
    """The image in its new size, mirrored where the width is negative."""
    height, width = map(int, scaled)
    image = resized_image(annotated.read(), (height, abs(width)))
    return np.array(image[:, ::-1] if width < 0 else image)  # Pillow's are read-only
