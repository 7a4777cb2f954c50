"""Batches without DALI: Pillow and numpy, for images in memory and where DALI is missing.

What is drawn is the same as in the DALI graphs. Pixels differ a little where images are scaled.
The clean pixels of the next batch are made in the background while the caller computes: they are
a pure function of the batch's number. The rest, which runs on the caller's device, is done when
the batch is asked for.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ddas_gpu.data.coco import Annotated
from ddas_gpu.data.decoding import read_image, resized
from ddas_gpu.data.sources import ImageArrays, Records, take
from ddas_gpu.pipelines import pixels as host
from ddas_gpu.pipelines.box_feed import TARGETS, BoxFeed, CleanExamples, DetectionBatch
from ddas_gpu.pipelines.feed import Batch, CleanBatch, Feed, LabelFeed
from ddas_gpu.pipelines.order import Order


class Prepared(NamedTuple):
    """A batch up to its clean pixels."""

    epoch: int
    samples: np.ndarray
    given: dict[str, Any]  # what the feed's `make` returns
    drawn: Any
    pixels: Any  # uint8 (B, H, W, 3), or a list of (H, W, 3)


class HostBatches(ABC):
    """Batch after batch, from any batch on, on `device`."""

    def __init__(self, feed: Feed, order: Order, device: str, workers: int | None = None) -> None:
        self._feed, self.order, self._device = feed, order, device
        self._pool = ThreadPoolExecutor(workers or len(os.sched_getaffinity(0)))
        self._background = ThreadPoolExecutor(1)
        self._ahead: tuple[int, Future[Prepared]] | None = None
        self.position: int | None = None

    def seek(self, position: int, memory: Any = None) -> None:
        self.position = position

    def memory(self) -> None:
        return None

    def next(self) -> Any:
        position = self.position
        assert position is not None, "seek comes before the first batch"
        if self._ahead is not None and self._ahead[0] == position:
            prepared = self._ahead[1].result()
        else:
            prepared = self._prepare(position)
        self.position = position + 1
        self._ahead = position + 1, self._background.submit(self._prepare, position + 1)
        return self._finish(prepared)

    def _prepare(self, position: int) -> Prepared:
        epoch, place = self.order.locate(position)
        samples = self.order.batch(epoch, place)
        given, drawn = self._feed.make(epoch, samples)
        return Prepared(epoch, samples, given, drawn, self._pixels(epoch, samples, given))

    @abstractmethod
    def _pixels(self, epoch: int, samples: np.ndarray, given: dict[str, Any]) -> Any:
        """Return the images after crop and flip."""

    @abstractmethod
    def _finish(self, prepared: Prepared) -> Any:
        """Return the batch: the policy, normalise and Cutout."""


class LabelsOnHost(HostBatches):
    """Images with one label each."""

    _feed: LabelFeed

    def __init__(self, feed: LabelFeed, *others: Any) -> None:
        if isinstance(feed.source, Records):
            raise ValueError(
                "reading .tar and .tfrecord files needs DALI: install ddas_gpu[cuda13]"
            )
        super().__init__(feed, *others)
        self._labels = feed.source.labels

    def _pixels(self, epoch: int, samples: np.ndarray, given: dict[str, Any]) -> np.ndarray:
        if "images" in given:
            return given["images"]
        source = self._feed.source
        if isinstance(source, ImageArrays):
            images = list(take(source.images, samples))
        else:
            images = list(self._pool.map(read_image, [source.files[i] for i in samples]))
        return self._feed.cropped(images, epoch, samples)

    def _finish(self, prepared: Prepared) -> Batch | CleanBatch:
        feed = self._feed
        pixels = host.moved(prepared.pixels, self._device)
        if feed.clean:
            return feed.clean_batch(pixels, prepared.epoch, prepared.samples)
        labels = host.moved(self._labels[prepared.samples], self._device).long()
        return feed.model_batch(pixels, labels, prepared.drawn, prepared.given.get("holes"))


class BoxesOnHost(HostBatches):
    """Images with boxes."""

    _feed: BoxFeed

    def _pixels(self, epoch: int, samples: np.ndarray, given: dict[str, Any]) -> list[np.ndarray]:
        chosen = [self._feed.source.images[sample] for sample in samples]
        return list(self._pool.map(_read, chosen, given["scaled"].astype(int)))

    def _finish(self, prepared: Prepared) -> DetectionBatch | CleanExamples:
        feed = self._feed
        images = [host.moved(image, self._device) for image in prepared.pixels]
        if feed.clean:
            return feed.clean_batch(images, prepared.epoch, prepared.samples)
        targets = [host.moved(prepared.given[name], self._device) for name in TARGETS]
        return feed.model_batch(images, targets, prepared.drawn)


def _read(annotated: Annotated, scaled: np.ndarray) -> np.ndarray:
    """Return the image in its new size, mirrored where the width is negative."""
    height, width = map(int, scaled)
    image = resized(annotated.read(), (height, abs(width)))
    return np.array(image[:, ::-1] if width < 0 else image)  # Pillow's are read-only
