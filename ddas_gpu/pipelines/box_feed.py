"""Images with boxes: what the host decides about each batch.

The annotations give the size of every image, so that everything but the pixels is known before a
file is opened: the sizes after resizing, and where the boxes are after resize, flip and policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ddas_gpu import streams
from ddas_gpu.data.coco import Annotated, Coco
from ddas_gpu.ops.box_policies import BoxStep, plan_boxes
from ddas_gpu.ops.inputs import padded_inputs
from ddas_gpu.pipelines.feed import Feed, as_tensor, paths_for_dali
from ddas_gpu.pipelines.order import Order
from ddas_gpu.pipelines.pixels import common_size
from ddas_gpu.pipelines.policy_node import BoxPolicyNode
from ddas_gpu.pipelines.targets import as_targets
from ddas_gpu.pipelines.transform import BoxTransform
from ddas_gpu.space import SearchSpace

if TYPE_CHECKING:
    from ddas_gpu.pipelines.host import HostBatches

# Of the graph's outputs, those that the host gives as they are.
TARGETS = ("boxes", "labels", "counts", "sizes", "ids", "image_ids", "category_ids")


class DetectionBatch(NamedTuple):
    """What a detector trains on: images with M boxes each, of which the first `counts` are real."""

    images: torch.Tensor  # normalised, (B, 3, H, W) unless asked otherwise, padded with 0
    boxes: torch.Tensor  # float32 (B, M, 4), x0 y0 x1 y1 in pixels of `images`; 0 beyond the count
    labels: torch.Tensor  # int64 (B, M); -1 beyond the count
    counts: torch.Tensor  # int64 (B,)
    sizes: torch.Tensor  # int64 (B, 2), height and width before padding
    ids: torch.Tensor  # int64 (B,), places of the images in the source
    image_ids: torch.Tensor  # int64 (B,), as in COCO's annotations; without them as `ids`
    category_ids: torch.Tensor  # int64 (B, M), likewise; without them labels + 1; -1 as in `labels`

    def as_targets(self, style: str) -> list[dict[str, torch.Tensor]]:
        """Return a dict per image, without the padding of the boxes.

        style: "torchvision" for its detectors: boxes x0 y0 x1 y1 in pixels, labels, image_id.
            "detr" for DETR and its kin: boxes as centre, width and height relative to the image
            before padding, labels (also as class_labels), image_id, size.

        Labels are `category_ids`, in which 0 is free for the background.
        """
        return as_targets(self, style)


class Examples(NamedTuple):
    """What the search augments: images of any sizes, each with any number of boxes."""

    images: list[Any]  # uint8 (H, W, 3)
    boxes: list[np.ndarray]  # (n, 4) float64, x0 y0 x1 y1 in pixels
    labels: list[np.ndarray]  # (n,) int64


class CleanExamples(NamedTuple):
    """A clean batch of them."""

    examples: Examples
    samples: np.ndarray  # (B,) places in the source
    epoch: int


class BoxFeed(Feed):
    """Files of images with any number of boxes."""

    advice = "replace such files, or take them out of the annotations"
    source: Coco
    transform: BoxTransform

    def __init__(self, source: Coco, transform: BoxTransform, **settings: Any) -> None:
        self.source, self.transform = source, transform
        super().__init__(**settings)

    @property
    def names(self) -> tuple[str, ...]:
        if self.clean:
            return ("paths", "scaled", "ids")
        return ("paths", "scaled", *(("canvas",) if self.finished else ()), *TARGETS)

    @property
    def files(self) -> Sequence[Path]:
        return self.source.files

    def make(
        self, epoch: int, samples: np.ndarray
    ) -> tuple[dict[str, Any], list[list[BoxStep]] | None]:
        chosen, sizes, flips = self._placed(epoch, samples)
        given: dict[str, Any] = {
            "paths": paths_for_dali([image.file for image in chosen]),
            # A negative width mirrors, at no cost.
            "scaled": (np.where(flips[:, None], (1, -1), 1) * sizes).astype(np.float32),
            "ids": samples.astype(np.int64),
        }
        if self.clean:
            return given, None
        steps = None
        boxes, labels = objects_of(chosen, sizes, flips)
        if self.schedule is not None:
            policies, key, _ = self.draw_policies(self.schedule, epoch, samples)
            space = self.schedule.space
            steps, boxes, labels = plan_boxes(
                sizes, boxes, labels, policies, space, key, samples=samples
            )
        given |= {
            "canvas": np.tile(np.array(common_size(sizes), np.float32), (len(samples), 1)),
            "sizes": np.array(sizes, np.int64),
            **padded(boxes, labels),
            "image_ids": self._image_ids(chosen, samples),
        }
        given["category_ids"] = self._category_ids(given["labels"])
        return given, steps

    def _image_ids(self, chosen: list[Annotated], samples: np.ndarray) -> np.ndarray:
        own = [place if i.id is None else i.id for i, place in zip(chosen, samples, strict=True)]
        return np.array(own, np.int64)

    def _category_ids(self, labels: np.ndarray) -> np.ndarray:
        """Return the ids of labels (B, M), of which some are -1."""
        numbers = self.source.category_ids
        own = np.array(numbers, np.int64)[labels] if numbers else labels + 1
        return np.where(labels < 0, -1, own)

    def _placed(
        self, epoch: int, samples: np.ndarray
    ) -> tuple[list[Annotated], list[tuple[int, int]], np.ndarray]:
        """Return the images, their sizes after resizing, and whether each is mirrored."""
        chosen = [self.source.images[sample] for sample in samples]
        sizes = [self.transform.resize.new_size(image.height, image.width) for image in chosen]
        flips = np.zeros(len(samples), bool)
        if self.training:
            flips = streams.crops_and_flips(self.seed, epoch, samples, self.transform.flip)[1]
        return chosen, sizes, flips

    def make_node(self, space: SearchSpace) -> BoxPolicyNode:
        return BoxPolicyNode(space, self.problems, self.drawn)

    def define(self, gpu: bool, reader: dict[str, Any]) -> tuple[Any, ...]:
        from ddas_gpu.pipelines.graph import define_boxes

        return define_boxes(self, gpu)

    def pack(
        self, outputs: Sequence[Any], epoch: int, samples: np.ndarray
    ) -> DetectionBatch | CleanExamples:
        targets = [as_tensor(output) for output in outputs[1:]]
        if not self.clean and self.finished:
            return DetectionBatch(as_tensor(outputs[0]), *targets)
        images = [torch.from_dlpack(image) for image in outputs[0]]
        if self.clean:
            return self.clean_batch(images, epoch, samples)
        return self.model_batch(images, targets, self.next_drawn())

    def model_batch(
        self,
        images: list[torch.Tensor],
        targets: list[torch.Tensor],
        steps: list[list[BoxStep]] | None,
    ) -> DetectionBatch:
        """Return uint8 images (H, W, 3) after the policy, normalised and padded: one pass."""
        size = common_size([(image.shape[0], image.shape[1]) for image in images])
        fill = 0 if self.schedule is None else self.schedule.space.fill
        inputs = padded_inputs(images, self.transform.output, size, steps, fill)
        return DetectionBatch(inputs, *targets)

    def clean_batch(
        self, images: list[torch.Tensor], epoch: int, samples: np.ndarray
    ) -> CleanExamples:
        chosen, sizes, flips = self._placed(epoch, samples)
        boxes, labels = objects_of(chosen, sizes, flips)
        if self.transform.rotate90:
            boxes = [rotated_boxes(b, width) for b, (_, width) in zip(boxes, sizes, strict=True)]
            images = [image.rot90().contiguous() for image in images]
        return CleanExamples(Examples(images, boxes, labels), samples, epoch)

    def on_host(self, order: Order, device: str, workers: int | None) -> HostBatches:
        from ddas_gpu.pipelines.host import BoxesOnHost

        return BoxesOnHost(self, order, device, workers)


def objects_of(
    chosen: Sequence[Annotated], sizes: Sequence[tuple[int, int]], flips: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the boxes and labels of images after resize and flip."""
    all_boxes, all_labels = [], []
    for image, size, flip in zip(chosen, sizes, flips, strict=True):
        boxes, labels = image.objects()
        boxes = resized_boxes(boxes, (image.height, image.width), size)
        all_boxes.append(flipped_boxes(boxes, size[1]) if flip else boxes)
        all_labels.append(labels)
    return all_boxes, all_labels


def resized_boxes(boxes: np.ndarray, size: tuple[int, int], new: tuple[int, int]) -> np.ndarray:
    """Return boxes (n, 4) of an image of this height and width, after it was resized."""
    y, x = new[0] / size[0], new[1] / size[1]
    return boxes * [x, y, x, y]


def flipped_boxes(boxes: np.ndarray, width: int) -> np.ndarray:
    """Return boxes (n, 4) of an image of this width, after it was mirrored."""
    x0, y0, x1, y1 = boxes.T
    return np.stack([width - x1, y0, width - x0, y1], axis=1)


def rotated_boxes(boxes: np.ndarray, width: int) -> np.ndarray:
    """Return boxes (n, 4) of an image of this width, after Pillow's ROTATE_90."""
    x0, y0, x1, y1 = boxes.T
    return np.stack([y0, width - x1, y1, width - x0], axis=1)


def padded(boxes: list[np.ndarray], labels: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Return boxes, labels and counts of a batch as arrays, with room for one box at least."""
    counts = np.array([len(each) for each in labels], np.int64)
    most = max(1, counts.max())
    all_boxes = np.zeros((len(counts), most, 4), np.float32)
    all_labels = np.full((len(counts), most), -1, np.int64)
    for i, count in enumerate(counts):
        all_boxes[i, :count], all_labels[i, :count] = boxes[i], labels[i]
    return {"boxes": all_boxes, "labels": all_labels, "counts": counts}
