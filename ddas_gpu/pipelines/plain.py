"""The same batches without DALI: Pillow and numpy, for machines that cannot install it.

What is drawn is the same as in the DALI graphs. Pixels differ a little where images are scaled.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from PIL import Image

from ddas_gpu.data.folder import read_image
from ddas_gpu.ops import augment
from ddas_gpu.pipelines import draws
from ddas_gpu.pipelines.base_feed import BaseFeed
from ddas_gpu.pipelines.epochs import Epochs
from ddas_gpu.pipelines.feed import Batch, Feed, pad_crop_flip
from ddas_gpu.pipelines.images import ImageArrays, Records
from ddas_gpu.pipelines.policy_node import Order
from ddas_gpu.pipelines.recipe import RESIZED_FROM


class OnDemand(ABC):
    """Batches made on the CPU when asked for, and moved to `device`."""

    def __init__(
        self, feed: BaseFeed, epochs: Epochs, device: str, num_threads: int | None = None
    ) -> None:
        self._feed, self.epochs, self._device = feed, epochs, device
        self._pool = ThreadPoolExecutor(num_threads or len(os.sched_getaffinity(0)))
        self.position: int | None = None

    def seek(self, position: int, memory: Any = None) -> None:
        self.position = position

    def memory(self) -> None:
        return None

    def next(self) -> Any:
        epoch, place = self.epochs.locate(self.position)
        samples = self.epochs.batch(epoch, place)
        batch = self._finished(samples, *self._feed.make(epoch, samples))
        self.position += 1
        return batch._make(part.to(self._device) for part in batch)

    @abstractmethod
    def _finished(self, samples: np.ndarray, batch: dict[str, Any], order: Any) -> Any:
        """What the DALI graph would do with what the host gives."""


class PlainBatches(OnDemand):
    """Images with a label each."""

    def __init__(self, feed: Feed, *others: Any) -> None:
        if isinstance(feed.images, Records):
            raise ValueError(
                "reading .tar and .tfrecord files needs DALI: install ddas_gpu[cuda13]"
            )
        super().__init__(feed, *others)

    def _finished(self, samples: np.ndarray, batch: dict[str, Any], order: Order | None) -> Batch:
        in_memory = isinstance(self._feed.images, ImageArrays)
        pixels = batch["images"] if in_memory else self._read(samples, batch)
        if order is not None:
            policies, key, samples = order
            pixels = augment(pixels, policies, self._feed.schedule.space, key, samples=samples)
        labels = torch.from_numpy(batch["labels"][:, 0].astype(np.int64))
        return Batch(self._normalised(pixels, batch.get("holes")), labels)

    def _read(self, samples: np.ndarray, batch: dict[str, Any]) -> np.ndarray:
        """(B, H, W, 3), cropped and flipped."""
        recipe, files = self._feed.recipe, self._feed.images.files
        images = self._pool.map(read_image, [files[sample] for sample in samples])
        if not self._feed.training and recipe.crop == "resized":
            return np.stack([_middle_part(image, recipe.size) for image in images])
        if recipe.crop == "pad":
            pixels = np.stack([_resize(image, None, recipe.size) for image in images])
            if not self._feed.training:
                return pixels
            return pad_crop_flip(pixels, batch["crops"], batch["flips"] == 1, recipe.padding)
        images = list(images)
        corners, sizes = draws.boxes(batch["crops"], np.array([i.shape[:2] for i in images]))
        ends = corners + sizes
        pixels = np.stack(
            [
                _resize(image, (*corner[::-1], *end[::-1]), recipe.size)
                for image, corner, end in zip(images, corners, ends, strict=True)
            ]
        )
        flips = batch["flips"] == 1
        pixels[flips] = pixels[flips, :, ::-1]
        return pixels

    def _normalised(self, pixels: np.ndarray, holes: np.ndarray | None) -> torch.Tensor:
        recipe = self._feed.recipe
        mean, deviation = torch.tensor(recipe.mean), torch.tensor(recipe.deviation)
        images = (torch.from_numpy(pixels) - mean) / deviation
        for image, corner in zip(images, [] if holes is None else holes.astype(int), strict=False):
            (top, bottom), (left, right) = ((max(c, 0), c + recipe.cutout) for c in corner)
            image[top : max(bottom, 0), left : max(right, 0)] = 0.0
        if recipe.layout == "NCHW":
            images = images.permute(0, 3, 1, 2).contiguous()
        return images.to(getattr(torch, recipe.dtype))


def _middle_part(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The part that the DALI graph's evaluation sees, which begins at a whole pixel."""
    around = [round(side * RESIZED_FROM) for side in size]
    scale = min(side / wanted for side, wanted in zip(image.shape, around, strict=False))
    scaled = tuple(round(side / scale) for side in image.shape[:2])
    top, left = ((whole - part + 1) // 2 for whole, part in zip(scaled, size, strict=True))
    return _resize(image, None, scaled)[top : top + size[0], left : left + size[1]]


def _resize(image: np.ndarray, box: Any, size: tuple[int, int]) -> np.ndarray:
    picture = Image.fromarray(image)
    return np.asarray(picture.resize(size[::-1], Image.Resampling.BILINEAR, box=box))
