"""The batches of a run: for its steps, and for testing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

from ddas_gpu.data.datasets import Examples
from ddas_gpu.data.sources import ImageArrays
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.loader import Loader, open_batches, warn_without_dali
from ddas_gpu.pipelines.order import Order

Batch = Any  # a NamedTuple of tensors with one row per sample, such as (images, labels)


class Batches(Protocol):
    """Batch after batch, from any batch on."""

    @property
    def order(self) -> Order: ...

    position: int | None  # the next batch, counted over all epochs; None before the first `seek`

    def seek(self, position: int, memory: Any = None) -> None: ...
    def next(self) -> Batch: ...
    def memory(self) -> Any:
        """Return what `seek` needs beside the position to come back here; tensors and numbers."""


class StepBatches:
    """The batches of a run, each full: a last step that is not full on all ranks is left out."""

    def __init__(self, feed: Feed, order: Order, device: str, workers: int | None = None) -> None:
        self.order = order
        self._batches = batches_of(feed, order, device, workers)

    @property
    def per_epoch(self) -> int:
        return self.order.batches

    def batch(self, step: int) -> Any:
        """Return the batch of a step, counted over all epochs: a pure function of its number."""
        if self._batches.position != step:
            self._batches.seek(step)
        return self._batches.next()


def batches_of(feed: Feed, order: Order, device: str, workers: int | None) -> Batches:
    """Run files in DALI; on the host what is in memory, and a user's data set."""
    if isinstance(feed.source, (ImageArrays, Examples)):
        return feed.on_host(order, device, workers)
    warn_without_dali(feed)
    return open_batches(feed, order, device, workers)


class EvaluationBatches:
    """Every image once on one of the ranks, in order, each time it is iterated over."""

    def __init__(self, feed: Feed, order: Order, device: str, workers: int | None = None) -> None:
        self._loader = Loader(feed, order, partial(batches_of, device=device, workers=workers))

    def __iter__(self) -> Iterator[Any]:
        self._loader.set_epoch(0)
        return iter(self._loader)
