"""What trainers look at of a loader, as at a DataLoader: which samples make up which batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddas_gpu.data.sources import Records

if TYPE_CHECKING:
    from ddas_gpu.pipelines.loader import Loader


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
