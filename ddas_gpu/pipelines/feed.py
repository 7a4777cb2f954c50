"""What the host gives a DALI graph for each batch: file names or pixels, labels, random choices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ddas_gpu.pipelines import draws
from ddas_gpu.pipelines.base_feed import BaseFeed, paths_for_dali
from ddas_gpu.pipelines.images import ImageArrays, ImageFiles, Images
from ddas_gpu.pipelines.policy_node import Order, PolicyNode
from ddas_gpu.pipelines.recipe import Recipe


class Batch(NamedTuple):
    """What a classifier trains on."""

    images: torch.Tensor  # normalised, (B, 3, H, W) unless asked otherwise
    labels: torch.Tensor  # int64 (B,)


class Feed(BaseFeed):
    """Images with a label each."""

    advice = "replace such files, or leave them out with on_bad_files='skip'"

    def __init__(self, images: Images, recipe: Recipe, **settings: Any) -> None:
        self.images, self.recipe = images, recipe
        super().__init__(**settings)

    @property
    def names(self) -> tuple[str, ...]:
        """What a batch consists of."""
        names: tuple[str, ...] = ()
        if isinstance(self.images, ImageFiles):
            names += ("paths", "labels")
        elif isinstance(self.images, ImageArrays):
            names += ("images", "labels")
        if self.training and not isinstance(self.images, ImageArrays):
            names += ("crops" if self.recipe.crop == "resized" else "shifts",)
            names += ("flips",) if self.recipe.flip else ()
        if self.training and self.recipe.cutout:
            names += ("holes",)
        return names

    @property
    def files(self) -> Sequence[Path] | None:
        return self.images.files if isinstance(self.images, ImageFiles) else None

    def make(self, epoch: int, samples: np.ndarray) -> tuple[dict[str, Any], Order | None]:
        order = None if self.schedule is None else self.order(epoch, samples)
        return self.batch(epoch, samples), order

    def make_node(self) -> PolicyNode:
        return PolicyNode(self.schedule.space, self.problems)

    def define(self, gpu: bool, reader: dict[str, Any]) -> tuple[Any, ...]:
        from ddas_gpu.pipelines.graph import define

        return define(self, gpu, reader)

    def pack(self, outputs: Sequence[torch.Tensor]) -> Batch:
        images, labels = outputs
        return Batch(images, labels[:, 0].to(images.device, torch.int64))

    def batch(self, epoch: int, samples: np.ndarray) -> dict[str, Any]:
        """Everything in `names`."""
        batch: dict[str, Any] = {}
        if isinstance(self.images, ImageFiles):
            batch["paths"] = paths_for_dali([self.images.files[i] for i in samples])
        if isinstance(self.images, (ImageFiles, ImageArrays)):
            # Like the labels of DALI's own readers.
            batch["labels"] = self.images.labels[samples].astype(np.int32)[:, None]
        crops = flips = None
        if self.training:
            crops, flips = draws.crops_and_flips(self.seed, epoch, samples, self.recipe.flip)
            batch["crops"], batch["flips"] = crops, flips.astype(np.int32)
            padding = self.recipe.padding
            batch["shifts"] = (draws.shifts(crops, padding) - padding).astype(np.int32)
        if isinstance(self.images, ImageArrays):
            batch["images"] = self._pixels(samples, crops, flips)
        if "holes" in self.names:
            size, side = self.recipe.size, self.recipe.cutout
            corners = draws.hole_corners(self.seed, epoch, samples, size, side)
            batch["holes"] = corners.astype(np.float32)
        return batch

    def order(self, epoch: int, samples: np.ndarray) -> Order:
        """The policies of a batch."""
        key = draws.sign_key(self.seed, epoch)
        return Order(self.policies(epoch, samples), key, samples)

    def _pixels(
        self, samples: np.ndarray, crops: np.ndarray | None, flips: np.ndarray | None
    ) -> np.ndarray:
        pixels = self.images.images[samples]
        if crops is None:
            return pixels
        return pad_crop_flip(pixels, crops, flips, self.recipe.padding)


def pad_crop_flip(
    images: np.ndarray, crops: np.ndarray, flips: np.ndarray, padding: int
) -> np.ndarray:
    """(B, H, W, 3) shifted into black and mirrored: small images, so numpy is fast enough."""
    count, height, width, channels = images.shape
    rows, columns = height + 2 * padding, width + 2 * padding
    padded = np.zeros((count, rows, columns, channels), np.uint8)
    padded[:, padding : padding + height, padding : padding + width] = images
    image, row, pixel, channel = padded.strides
    places = 2 * padding + 1
    windows = np.lib.stride_tricks.as_strided(
        padded,
        (count, places, places, height, width, channels),
        (image, row, pixel, row, pixel, channel),
        writeable=False,
    )
    down, across = draws.shifts(crops, padding).T
    shifted = windows[np.arange(count), down, across]
    shifted[flips] = shifted[flips, :, ::-1]
    return shifted
