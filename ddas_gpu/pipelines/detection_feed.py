"""Images with boxes: what the host gives the graph for each batch.

The annotations tell the size of every image, so that everything but the pixels is known before a
file is opened: the sizes after resizing, and where the boxes are after resize, flip and policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ddas_gpu.data.coco import Annotated
from ddas_gpu.detection.batches import common_size
from ddas_gpu.detection.transforms import flipped_boxes, resized_boxes
from ddas_gpu.ops.box_policies import BoxStep, plan_boxes
from ddas_gpu.pipelines import draws
from ddas_gpu.pipelines.base_feed import BaseFeed, paths_for_dali
from ddas_gpu.pipelines.detection_recipe import DetectionRecipe
from ddas_gpu.pipelines.policy_node import BoxPolicyNode

# Of the graph's outputs, those that the host gives as they are.
TARGETS = ("boxes", "labels", "counts", "sizes", "ids")


class DetectionBatch(NamedTuple):
    """What a detector trains on: images with M boxes each, of which the first `counts` are real."""

    images: torch.Tensor  # normalised, (B, 3, H, W) unless asked otherwise, padded with 0
    boxes: torch.Tensor  # float32 (B, M, 4), x0 y0 x1 y1 in pixels of `images`; 0 beyond the count
    labels: torch.Tensor  # int64 (B, M); -1 beyond the count
    counts: torch.Tensor  # int64 (B,)
    sizes: torch.Tensor  # int64 (B, 2), height and width before padding
    ids: torch.Tensor  # int64 (B,), places of the images in the source


class DetectionFeed(BaseFeed):
    """Files of images with any number of boxes."""

    advice = "replace such files, or take them out of the annotations"

    def __init__(self, images: Sequence[Annotated], recipe: DetectionRecipe, **settings: Any):
        self.images, self.recipe = images, recipe
        super().__init__(**settings)

    @property
    def names(self) -> tuple[str, ...]:
        return ("paths", "scaled", "canvas", *TARGETS)

    @property
    def files(self) -> Sequence[Path]:
        return [image.file for image in self.images]

    def make(
        self, epoch: int, samples: np.ndarray
    ) -> tuple[dict[str, Any], list[list[BoxStep]] | None]:
        chosen = [self.images[sample] for sample in samples]
        sizes = [self.recipe.resize.new_size(image.height, image.width) for image in chosen]
        flips = self._flips(epoch, samples)
        boxes, labels = self._objects(chosen, sizes, flips)
        order = None
        if self.schedule is not None:
            policies, space = self.policies(epoch, samples), self.schedule.space
            key = draws.sign_key(self.seed, epoch)
            order, boxes, labels = plan_boxes(
                sizes, boxes, labels, policies, space, key, samples=samples
            )
        batch = {
            "paths": paths_for_dali([image.file for image in chosen]),
            # A negative width mirrors, at no cost.
            "scaled": (np.where(flips[:, None], (1, -1), 1) * sizes).astype(np.float32),
            "canvas": np.tile(np.float32(common_size(sizes)), (len(samples), 1)),
            "sizes": np.array(sizes, np.int64),
            "ids": samples.astype(np.int64),
            **padded(boxes, labels),
        }
        return batch, order

    def _flips(self, epoch: int, samples: np.ndarray) -> np.ndarray:
        if not self.training:
            return np.zeros(len(samples), bool)
        return draws.crops_and_flips(self.seed, epoch, samples, self.recipe.flip)[1]

    def _objects(
        self, chosen: list[Annotated], sizes: list[tuple[int, int]], flips: np.ndarray
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Boxes and labels after resize and flip."""
        all_boxes, all_labels = [], []
        for image, size, flip in zip(chosen, sizes, flips, strict=True):
            boxes, labels = image.objects()
            boxes = resized_boxes(boxes, (image.height, image.width), size)
            all_boxes.append(flipped_boxes(boxes, size[1]) if flip else boxes)
            all_labels.append(labels)
        return all_boxes, all_labels

    def make_node(self) -> BoxPolicyNode:
        return BoxPolicyNode(self.schedule.space, self.problems)

    def define(self, gpu: bool, reader: dict[str, Any]) -> tuple[Any, ...]:
        from ddas_gpu.pipelines.detection_graph import define

        return define(self, gpu)

    def pack(self, outputs: Sequence[torch.Tensor]) -> DetectionBatch:
        device = outputs[0].device
        return DetectionBatch(*(part.to(device) for part in outputs))


def padded(boxes: list[np.ndarray], labels: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Boxes, labels and counts of a batch as arrays, with room for one box at least."""
    counts = np.array([len(each) for each in labels], np.int64)
    most = max(1, counts.max())
    all_boxes = np.zeros((len(counts), most, 4), np.float32)
    all_labels = np.full((len(counts), most), -1, np.int64)
    for i, count in enumerate(counts):
        all_boxes[i, :count], all_labels[i, :count] = boxes[i], labels[i]
    return {"boxes": all_boxes, "labels": all_labels, "counts": counts}
