"""The feed of a user's own data: clean images with targets of any kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map

from ddas_gpu.data.datasets import ExampleArrays, Examples, collate
from ddas_gpu.data.workers import in_workers
from ddas_gpu.pipelines.feed import CleanBatch, LabelFeed
from ddas_gpu.pipelines.order import Order


class ExampleFeed(LabelFeed):
    """Crops and flips as `LabelFeed` does; `CleanBatch.labels` are the collated targets."""

    source: Any  # Examples or ExampleArrays

    def clean_batch(self, images: torch.Tensor, epoch: int, samples: np.ndarray) -> CleanBatch:
        source: ExampleArrays = self.source
        targets = collate([source.targets[sample] for sample in samples])
        return self.with_targets(images, targets, epoch, samples)

    def with_targets(
        self, images: torch.Tensor, targets: Any, epoch: int, samples: np.ndarray
    ) -> CleanBatch:
        if self.transform.rotate90:
            images = images.rot90(1, (1, 2)).contiguous()
        targets = to_device(targets, images.device)
        return CleanBatch(images, targets, samples, epoch, self.holes(epoch, samples))

    def on_host(self, order: Order, device: str, workers: int | None) -> Any:
        if isinstance(self.source, Examples):
            return ExampleBatches(self, order, device, workers)
        return super().on_host(order, device, workers)


class ExampleBatches:
    """`Batches` that worker processes read, crop and collate, some batches ahead."""

    def __init__(self, feed: ExampleFeed, order: Order, device: str, workers: int | None) -> None:
        self._feed, self.order, self._device = feed, order, device
        self._workers = 1 if workers is None else workers
        self.position: int | None = None
        self._read: Iterator[Any] = iter(())

    def seek(self, position: int, memory: Any = None) -> None:
        self.position = position
        keys = _Keys(self.order, position)
        self._read = in_workers(self._feed.source.read, keys, Cropped(self._feed), self._workers)

    def memory(self) -> None:
        return None

    def next(self) -> CleanBatch:
        assert self.position is not None
        epoch, place = self.order.locate(self.position)
        pixels, targets = next(self._read)
        self.position += 1
        samples = self.order.batch(epoch, place)
        return self._feed.with_targets(pixels.to(self._device), targets, epoch, samples)


class _Keys:
    """(epoch, samples) of every batch from a position on, without an end."""

    def __init__(self, order: Order, position: int) -> None:
        self.order, self.position = order, position

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        position = self.position
        while True:
            epoch, place = self.order.locate(position)
            yield epoch, self.order.batch(epoch, place)
            position += 1


class Cropped:
    """Makes clean pixels and collated targets of examples, in a worker process."""

    def __init__(self, feed: ExampleFeed) -> None:
        self.feed = feed

    def __call__(self, epoch: int, samples: np.ndarray, pairs: list[Any]) -> tuple[Any, Any]:
        images = [image for image, _ in pairs]
        pixels = self.feed.cropped(images, epoch, samples)
        return torch.from_numpy(pixels), collate([target for _, target in pairs])


def to_device(targets: Any, device: torch.device) -> Any:
    """Move every tensor of collated targets."""
    return tree_map(lambda leaf: leaf.to(device) if torch.is_tensor(leaf) else leaf, targets)
