"""The batch of any step on demand, so that a search or a training resumes anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ddas_gpu.data.datasets import Examples
from ddas_gpu.data.sources import ImageArrays
from ddas_gpu.pipelines.batches import Batches, open_batches, warn_without_dali
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.loader import Loader
from ddas_gpu.pipelines.order import Order


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


class EvaluationBatches:
    """Every image once on one of the ranks, in order, each time it is iterated over."""

    def __init__(self, feed: Feed, order: Order, device: str, workers: int | None = None) -> None:
        self._loader = Loader(feed, order, partial(batches_of, device=device, workers=workers))

    def __iter__(self) -> Iterator[Any]:
        self._loader.set_epoch(0)
        return iter(self._loader)


def batches_of(feed: Feed, order: Order, device: str, workers: int | None) -> Batches:
    """Run files in DALI; on the host what is in memory, and a user's data set."""
    if isinstance(feed.source, (ImageArrays, Examples)):
        return feed.on_host(order, device, workers)
    warn_without_dali(feed)
    return open_batches(feed, order, device, workers)


def order_for(
    samples: int, batch_size: int, seed: int, rank: int, ranks: int, flag: str = "--batch-size"
) -> Order:
    """Return the order of a run's training images on this rank."""
    if batch_size * ranks > samples:
        on_all = f" on {ranks} ranks" if ranks > 1 else ""
        raise ValueError(
            f"{flag} {batch_size}{on_all} is larger than the set, which has {samples} images"
        )
    return Order(samples, batch_size, seed, rank, ranks, shuffle=True, drop_last=True)


def spread(count: int, most: int) -> np.ndarray:
    """Return up to `most` numbers below `count`, evenly spread."""
    return np.linspace(0, count - 1, min(most, count)).astype(int)
