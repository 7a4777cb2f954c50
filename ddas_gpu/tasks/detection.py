"""The search's task for images with boxes."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from ddas_gpu.detection.batches import network_inputs
from ddas_gpu.detection.losses import detection_loss
from ddas_gpu.detection.matching import targets_for
from ddas_gpu.detection.sets import DetectionSet, Examples
from ddas_gpu.distributed.ranks import ALONE, Ranks
from ddas_gpu.distributed.shares import Share
from ddas_gpu.models.anchors import anchors_for
from ddas_gpu.ops import augment_boxes
from ddas_gpu.search.settings import SearchSettings
from ddas_gpu.space import SearchSpace
from ddas_gpu.tasks.detectors import build_detector
from ddas_gpu.tasks.object_counts import counted_on_all_ranks
from ddas_gpu.tasks.task import Versions


class Detection:
    """A `Task`; every version of a batch has boxes of its own, moved with its pixels."""

    loss = staticmethod(detection_loss)

    def __init__(
        self,
        settings: SearchSettings,
        train: DetectionSet,
        validation: DetectionSet,
        device: torch.device,
        ranks: Ranks = ALONE,
    ) -> None:
        self.train, self.validation, self.device = train, validation, device
        self.ranks = ranks
        self.settings = settings.training

    def build_model(self) -> nn.Module:
        return build_detector(self.settings, len(self.train.class_names)).to(self.device)

    def clean_batch(
        self, indices: np.ndarray, generator: np.random.Generator, share: Share | None = None
    ) -> Examples:
        rows = (share or Share.of_all(len(indices))).rows
        examples = self.train.batch(indices, generator, rows)
        images = [torch.from_numpy(image).to(self.device) for image in examples.images]
        return examples._replace(images=images)

    def versions(
        self,
        batch: Examples,
        policies: np.ndarray,
        space: SearchSpace,
        seed: int,
        generator: np.random.Generator,
        share: Share | None = None,
    ) -> Versions:
        count, size = len(policies), len(batch.images)
        share = share or Share.of_all(size)
        samples = share.whole * np.arange(count)[:, None] + share.places
        augmented = Examples(
            *augment_boxes(
                *(column * count for column in batch),
                policies.repeat(size, axis=0),
                space,
                seed,
                samples=samples.reshape(-1),
            )
        )
        in_all = Examples(*(clean + new for clean, new in zip(batch, augmented, strict=True)))
        inputs = network_inputs(in_all.images, self.device)
        versions = [
            Examples(*(column[start : start + size] for column in in_all))
            for start in range(0, len(in_all.images), size)
        ]
        targets = [self._targets(version, inputs) for version in versions]
        return Versions(
            inputs.unflatten(0, (count + 1, size)),
            counted_on_all_ranks(targets, self.ranks),
            torch.tensor([same(version, batch) for version in versions[1:]]),
        )

    def validation_batch(
        self, indices: np.ndarray, generator: np.random.Generator
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Resized and normalised, nothing else: no policy, no flip."""
        examples = self.validation.batch(indices, generator)
        inputs = network_inputs(examples.images, self.device)
        (targets,) = counted_on_all_ranks([self._targets(examples, inputs)], self.ranks)
        return inputs, targets

    def _targets(self, examples: Examples, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        anchors = anchors_for(*inputs.shape[-2:], self.settings.anchor_scale).to(self.device)
        return targets_for(anchors, examples.boxes, examples.labels)


def same(one: Examples, other: Examples) -> bool:
    """Whether all pixels, boxes and labels are equal."""
    return all(
        torch.equal(one.images[i], other.images[i])
        and np.array_equal(one.boxes[i], other.boxes[i])
        and np.array_equal(one.labels[i], other.labels[i])
        for i in range(len(other.images))
    )
