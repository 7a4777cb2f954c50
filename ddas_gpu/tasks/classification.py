"""The search's task for images with one label each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ddas_gpu import ops
from ddas_gpu.data import DataSet, Normalise, cutout_holes
from ddas_gpu.distributed.shares import Share
from ddas_gpu.models import build
from ddas_gpu.models.retinanet import RetinaNet
from ddas_gpu.search.settings import SearchSettings
from ddas_gpu.space import SearchSpace
from ddas_gpu.tasks.task import Versions


class CleanBatch(NamedTuple):
    images: torch.Tensor  # uint8 (B, H, W, 3), cropped and flipped
    labels: torch.Tensor


class Classification:
    """A `Task`; every version of a batch has the batch's labels."""

    loss = staticmethod(F.cross_entropy)

    def __init__(
        self,
        settings: SearchSettings,
        train: DataSet,
        validation: DataSet,
        device: torch.device,
    ) -> None:
        self.train, self.validation, self.device = train, validation, device
        self.model_name, self.cutout = settings.training.model, settings.data.cutout
        self.normalise = Normalise(train.images)

    def build_model(self) -> nn.Module:
        model = build(self.model_name, len(self.train.class_names))
        if isinstance(model, RetinaNet):
            raise ValueError(f"--model {self.model_name} is a detector: it needs --data coco")
        return model.to(self.device)

    def clean_batch(
        self, indices: np.ndarray, generator: np.random.Generator, share: Share | None = None
    ) -> CleanBatch:
        rows = (share or Share.of_all(len(indices))).rows
        images = self.train.batch(indices, generator, rows)
        labels = self.train.labels[indices[rows]]
        return CleanBatch(self._to_device(images), self._to_device(labels))

    def versions(
        self,
        batch: CleanBatch,
        policies: np.ndarray,
        space: SearchSpace,
        seed: int,
        generator: np.random.Generator,
        share: Share | None = None,
    ) -> Versions:
        share = share or Share.of_all(len(batch.images))
        pixels = ops.versions(batch.images, policies, space, seed=seed, samples=share.places)
        inputs = self.normalise(pixels)
        if self.cutout:
            height, width = pixels.shape[2:4]
            holes = cutout_holes(share.whole, height, width, self.cutout, generator)
            inputs.masked_fill_(holes[share.rows].to(self.device), 0.0)
        return Versions(inputs, batch.labels, unchanged(pixels))

    def validation_batch(
        self, indices: np.ndarray, generator: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalised and nothing else: no policy, no flip, no Cutout."""
        images = self.validation.batch(indices, generator)
        inputs = self.normalise(self._to_device(images))
        return inputs, self._to_device(self.validation.labels[indices])

    def _to_device(self, array: np.ndarray | torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(array).to(self.device)


def unchanged(pixels: torch.Tensor) -> torch.Tensor:
    """(L̂,) bool: the versions whose every byte is that of the clean batch, version 0."""
    return (pixels[1:] == pixels[:1]).flatten(1).all(1).cpu()
