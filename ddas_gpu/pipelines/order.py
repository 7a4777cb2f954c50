"""Which samples make up which batch, for every epoch and rank."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from ddas_gpu import streams
from ddas_gpu.streams import Stream


@dataclass(frozen=True)
class Order:
    """The order of `samples` samples, cut into shards and batches.

    Every batch is full, and every rank has equally many: the last ones are filled up, or with
    `drop_last` left out. Shuffled samples are dealt to the ranks round-robin, so that batch n of
    all ranks together holds what batch n of a single rank with the whole batch holds; they are
    filled up from the start of the epoch's order. Others are cut into blocks, as DALI's readers
    do, and filled up with their last sample.

    With `steps` every epoch has that many batches on each rank: the rest of the epoch's order is
    left out, or the order is repeated.
    """

    samples: int
    batch_size: int
    seed: int = 0
    shard_id: int = 0
    num_shards: int = 1
    shuffle: bool = True
    drop_last: bool = False
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"a batch has at least 1 sample, not {self.batch_size}")
        if not 0 <= self.shard_id < self.num_shards:
            raise ValueError(f"shard {self.shard_id} is not one of {self.num_shards}, from 0 on")
        if self.samples < self.num_shards:
            raise ValueError(f"{self.samples} samples cannot be dealt to {self.num_shards} shards")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"an epoch has at least 1 step, not {self.steps}")

    @cached_property
    def shard_size(self) -> int:
        """Samples of this rank in an epoch."""
        return self._dealt if self.steps is None else self.steps * self.batch_size

    @cached_property
    def _dealt(self) -> int:
        """Samples of this rank, each once."""
        if self.shuffle:
            return -(-self.samples // self.num_shards)
        return len(self._block)

    @cached_property
    def batches(self) -> int:
        """Batches of an epoch, the same on all ranks."""
        if self.steps is not None:
            return self.steps
        whole = self.num_shards * self.batch_size
        return self.samples // whole if self.drop_last else -(-self.samples // whole)

    @property
    def _block(self) -> range:
        ends = (self.samples * (self.shard_id + i) // self.num_shards for i in (0, 1))
        return range(*ends)

    def locate(self, iteration: int) -> tuple[int, int]:
        """Return the epoch of an iteration, counted over all epochs, and its place in there."""
        return divmod(iteration, self.batches)

    def batch(self, epoch: int, place: int) -> np.ndarray:
        """Return the samples of a batch, (batch_size,) places in the data set."""
        wanted = np.arange(place * self.batch_size, (place + 1) * self.batch_size)
        if not self.shuffle:
            return self._block.start + np.minimum(wanted, self._dealt - 1)
        order = epoch_order(self.samples, self.seed, epoch)
        filled = wanted % self._dealt
        return order[(filled * self.num_shards + self.shard_id) % self.samples]

    def reader_meta(self) -> dict[str, Any]:
        """Return what DALI's iterators ask of a reader."""
        even = -(-self.samples // self.num_shards) * self.num_shards
        size = even if self.shuffle else self.samples
        if self.steps is not None:
            size = even = self.steps * self.batch_size * self.num_shards
        return {
            "epoch_size": size,
            "epoch_size_padded": even,
            "number_of_shards": self.num_shards,
            "shard_id": self.shard_id,
            "pad_last_batch": 1,
            "stick_to_shard": 1,
        }


@dataclass(frozen=True)
class ReaderOrder(Order):
    """The order of a DALI reader, which only DALI knows: samples are numbered as they come.

    All numbers differ, those of filled-up places too.
    """

    @cached_property
    def _dealt(self) -> int:
        return len(self._block)

    def batch(self, epoch: int, place: int) -> np.ndarray:
        numbers = np.arange(place * self.batch_size, (place + 1) * self.batch_size)
        return numbers * self.num_shards + self.shard_id


@lru_cache(maxsize=8)  # prefetching alternates between two epochs, of up to two sets
def epoch_order(samples: int, seed: int, epoch: int) -> np.ndarray:
    """Return the random order of the samples in an epoch."""
    return streams.generator(seed, Stream.TRAINING_ORDER, epoch).permutation(samples)
