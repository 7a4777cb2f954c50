"""A DALI pipeline that can be sent to an epoch."""

from __future__ import annotations

from typing import Any

from ddas_gpu.pipelines.dali import ImagePipeline
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.order import Order


class EpochPipeline(ImagePipeline):
    """An ImagePipeline that begins with `start_epoch`, and goes to any other."""

    def __init__(self, feed: Feed, order: Order, *, start_epoch: int = 0, **options: Any) -> None:
        super().__init__(feed, order, **options)
        self._start_epoch = start_epoch

    def build(self) -> None:
        if self._built:
            return
        super().build()  # only now is the number of samples in record files known
        self.feed.first += self._start_epoch * self.order.batches

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        if not self._built:
            self.build()
        return self.order.locate(self.feed.first + self._consumer_iter)[0]

    def set_epoch(self, epoch: int) -> None:
        """Make the next batch the first one of `epoch`, if it is not of this epoch already.

        For trainers that leave an epoch early. Batches that were prepared ahead are thrown away.
        Record files cannot be sent anywhere: their images go on, with the policies of `epoch`.
        """
        if epoch < 0:
            raise ValueError(f"epochs are counted from 0, not {epoch}")
        if self.epoch == epoch:
            return
        if self._api_type is None:  # nothing was run yet
            self.feed.first = epoch * self.order.batches
            return
        ahead = self._batches_to_consume
        # Without the scope DALI refuses to mix ways of running a pipeline.
        with self._check_api_type_scope(self._api_type):
            for _ in range(ahead):
                self.outputs()
            self.feed.first = epoch * self.order.batches - self._consumer_iter
            for _ in range(ahead):
                self._run_once()
