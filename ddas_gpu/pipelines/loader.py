"""Iterating over epochs of batches, with exact resume: what most trainers want of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ddas_gpu.data.sources import Records
from ddas_gpu.pipelines.batches import Batch, Batches, batches_of
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.order import Order, check_shards, require_one_seed, shard_of

Shard = tuple[int | None, int | None]  # (shard_id, num_shards); None for torch.distributed's


class Loader:
    """Iterates over one epoch at a time: each `for images, labels in loader` is the next one.

    The last batch may be smaller. A pass that is left early counts as done. Epochs beyond the last
    one of a schedule keep its last probabilities.

    Which share of the images this process gets is asked at every pass, so that a loader may be
    made before torch.distributed is initialised. `dataset`, `sampler`, `batch_sampler`,
    `batch_size` and `drop_last` are there for trainers that look at them, as at a DataLoader's.
    """

    def __init__(
        self,
        feed: Feed,
        order: Order,
        open: Callable[[Feed, Order], Batches],
        *,
        shard: Shard | None = None,
        drop_last: bool = False,
    ) -> None:
        self._feed, self._whole, self._open = feed, order, open
        self._shard = (order.shard_id, order.num_shards) if shard is None else shard
        check_shards(*self._shard)
        self._batches: Batches | None = None  # opened by the first pass
        self._opened: tuple[int, int] | None = None  # the shard that they are of
        self.drop_last = drop_last
        self.epoch = 0  # of the present or the next pass
        self._place = 0  # batches of it that were returned
        self._memory: Any = None
        self._resumed = False

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_batches": None, "_opened": None}  # threads stay at home

    @property
    def dataset(self) -> Any:
        """The source: its `len` is the number of images, its `class_names` name the labels."""
        return self._feed.source

    @property
    def transform(self) -> Any:
        """The standard transform: sizes, crop, flip, and in `output` the mean and deviation."""
        return self._feed.transform

    @property
    def batch_size(self) -> int:
        return self._whole.batch_size

    # Made when asked for: a loader in a reference cycle would be freed by the garbage collector,
    # perhaps in a thread of its own DALI pipeline, which cannot shut down from there.

    @property
    def sampler(self) -> Sampler:
        return Sampler(self)

    @property
    def batch_sampler(self) -> BatchSampler:
        return BatchSampler(self)

    @property
    def order(self) -> Order:
        """The order of this rank's samples."""
        if isinstance(self._feed.source, Records):  # only DALI knows their number
            return self._batches_of_rank(warn=False).order
        return self._order_of(shard_of(*self._shard, warn=False))

    def _order_of(self, shard: tuple[int, int]) -> Order:
        samples = self._whole.samples
        if isinstance(self._feed.source, Records):
            samples = max(samples, shard[1])
        return replace(self._whole, samples=samples, shard_id=shard[0], num_shards=shard[1])

    def _batches_of_rank(self, warn: bool = True) -> Batches:
        shard = shard_of(*self._shard, warn=warn)
        if self._batches is None or shard != self._opened:
            order = self._order_of(shard)
            require_one_seed(order)
            self._batches, self._opened = self._open(self._feed, order), shard
        return self._batches

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        order = self.order
        full, rest = divmod(order.shard_size, order.batch_size)
        return full if self.drop_last or not rest else full + 1

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of `epoch`. Needed only to skip or repeat epochs."""
        if epoch < 0:
            raise ValueError(f"epochs are counted from 0, not {epoch}")
        if self._resumed and epoch == self.epoch:
            return  # a trainer that was resumed within an epoch announces it again
        self.epoch, self._place, self._resumed = epoch, 0, False

    def __iter__(self) -> Iterator[Batch]:
        return self._pass(self._batches_of_rank())

    def _pass(self, batches: Batches) -> Iterator[Batch]:
        # Here and not in __iter__: Lightning announces an epoch after it has asked for an iterator.
        if self._place and not self._resumed:  # the last pass was left early
            self.epoch, self._place = self.epoch + 1, 0
        self._resumed = False
        order, length = batches.order, len(self)
        start = self.epoch * order.batches
        while self._place < length:
            if batches.position != start + self._place:
                batches.seek(start + self._place, self._memory)
            self._memory = None
            batch = batches.next()
            left = min(order.batch_size, order.shard_size - self._place * order.batch_size)
            self._place += 1
            yield batch._make(part[:left] for part in batch)
        while batches.position is not None and batches.position < start + order.batches:
            batches.next()  # a last batch to be dropped
        self.epoch, self._place = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is; safe for `torch.save` and `torch.load(weights_only=True)`."""
        return {
            "epoch": self.epoch,
            "batch": self._place,
            "data": self._data(),
            "memory": None if self._batches is None else self._batches.memory(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the batch after the last one that was returned, exactly."""
        data = self._data()
        differ = [name for name in data if state["data"].get(name) != data[name]]
        if differ:
            name = differ[0]
            raise ValueError(
                f"the state is of a loader with {name} {state['data'].get(name)}, "
                f"but this one has {data[name]}"
            )
        self.epoch, self._place = state["epoch"], state["batch"]
        self._memory, self._resumed = state["memory"], True
        if self._batches is not None:
            self._batches.position = None  # begin anew, wherever the pipeline is

    def _data(self) -> dict[str, int]:
        order = self.order
        names = ("samples", "batch_size", "seed", "num_shards")
        return {name: getattr(order, name) for name in names}


class Sampler:
    """The numbers of a loader's samples in the present epoch, as a DataLoader's sampler has them.

    Record files are read in an order that only DALI knows: their samples cannot be listed.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)

    def __len__(self) -> int:
        order = self._loader.order
        whole = len(self._loader) * order.batch_size
        return whole if self._loader.drop_last else order.shard_size

    def __iter__(self) -> Iterator[int]:
        for batch in self._loader.batch_sampler:
            yield from batch


class BatchSampler:
    """The same, batch by batch."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    @property
    def sampler(self) -> Sampler:
        return self._loader.sampler

    @property
    def batch_size(self) -> int:
        return self._loader.batch_size

    @property
    def drop_last(self) -> bool:
        return self._loader.drop_last

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        if isinstance(self._loader.dataset, Records):
            raise TypeError("record files are read in an order that only DALI knows")
        order, epoch = self._loader.order, self._loader.epoch
        for place in range(len(self)):
            left = order.shard_size - place * order.batch_size
            yield order.batch(epoch, place)[:left].tolist()


class EvaluationBatches:
    """Every image once on one of the ranks, in order, each time it is iterated over."""

    def __init__(self, feed: Feed, order: Order, device: str, workers: int | None = None) -> None:
        self._loader = Loader(feed, order, partial(batches_of, device=device, workers=workers))

    def __iter__(self) -> Iterator[Any]:
        self._loader.set_epoch(0)
        return iter(self._loader)


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
