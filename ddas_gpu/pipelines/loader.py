"""Iterating over epochs of batches, with exact resume: what most trainers want of a pipeline."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ddas_gpu.data.sources import Records
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.order import Order

if TYPE_CHECKING:
    from ddas_gpu.pipelines.dali import ImagePipeline

Batch = Any  # a NamedTuple of tensors with one row per sample, such as (images, labels)


class Batches(Protocol):
    """Batch after batch, from any batch on."""

    order: Order
    position: int | None  # the next batch, counted over all epochs; None before the first `seek`

    def seek(self, position: int, memory: Any = None) -> None: ...
    def next(self) -> Batch: ...
    def memory(self) -> Any:
        """What `seek` needs beside the position to come back here; tensors and numbers."""


class DaliBatches:
    """The batches of an ImagePipeline as torch tensors, on its device."""

    def __init__(self, feed: Feed, order: Order, **options: Any) -> None:
        self._feed, self._order, self._options = feed, order, options
        self._records = isinstance(feed.source, Records)
        self.position: int | None = None
        self._pipeline: Any = None

    @property
    def order(self) -> Order:
        if self._records:  # whose number only the built pipeline knows
            if self._pipeline is None:
                self.seek(0)
            self._pipeline.build()
            return self._pipeline.order
        return self._order

    def seek(self, position: int, memory: Any = None) -> None:
        """Begin with the batch `position`.

        Files and arrays begin anywhere. DALI's own readers need a checkpoint of theirs, or begin
        their order anew.
        """
        first, options = position, dict(self._options)
        if self._records:
            options["enable_checkpointing"] = True
            if memory is not None:
                first = memory["first"]
                options["checkpoint"] = memory["checkpoint"].numpy().tobytes()
        self._pipeline = make_pipeline(
            self._feed.from_batch(first), self._order, finished=False, **options
        )
        self.position = position

    def next(self) -> Batch:
        outputs = self._pipeline.run(self._pipeline.torch_stream())
        order = self._pipeline.order
        epoch, place = order.locate(self.position)
        self.position += 1
        return self._pipeline.feed.pack(outputs, epoch, order.batch(epoch, place))

    def memory(self) -> Any:
        if not self._records or self._pipeline is None:
            return None
        checkpoint = bytearray(self._pipeline.checkpoint())
        return {
            "first": self._pipeline.feed.first,
            "checkpoint": torch.frombuffer(checkpoint, dtype=torch.uint8),
        }


def make_pipeline(
    feed: Feed, order: Order, device: str, *, device_id: int | None = None, **options: Any
) -> ImagePipeline:
    """Build a DALI pipeline, or raise an ImportError that says what to install.

    device, device_id: those of `dali.gpu_number`.
    """
    try:
        from ddas_gpu.pipelines.dali import ImagePipeline, gpu_number
    except ImportError as error:
        raise ImportError(
            "DALI pipelines need NVIDIA DALI, also on the CPU: install ddas_gpu[cuda13] or "
            f"ddas_gpu[cuda12], or use ddas_gpu.loader, which works without it ({error})"
        ) from error
    return ImagePipeline(feed, order, device_id=gpu_number(device, device_id), **options)


class Loader:
    """Iterates over an epoch a time: each `for images, labels in loader` is the next one.

    The last batch may be smaller. A pass that is left early counts as done.
    """

    def __init__(self, batches: Batches, total_epochs: int | None, drop_last: bool) -> None:
        self._batches, self._total, self._drop_last = batches, total_epochs, drop_last
        self.epoch = 0  # of the present or the next pass
        self._place = 0  # batches of it that were handed out
        self._memory: Any = None
        self._resumed = False

    def __len__(self) -> int:
        """Batches in an epoch."""
        order = self._batches.order
        full, rest = divmod(order.shard_size, order.batch_size)
        return full if self._drop_last or not rest else full + 1

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of `epoch`. Needed only to go to another than the next one."""
        self._check_epoch(epoch)
        if self._resumed and epoch == self.epoch:
            return  # a trainer that was resumed within an epoch announces it again
        self.epoch, self._place, self._resumed = epoch, 0, False

    def _check_epoch(self, epoch: int) -> None:
        if epoch < 0 or (self._total is not None and epoch >= self._total):
            raise ValueError(
                f"epoch {epoch} is not one of the {self._total} epochs, counted from 0, that "
                "this loader was made for"
            )

    def __iter__(self) -> Iterator[Batch]:
        if self._place and not self._resumed:  # the last pass was left early
            self.epoch, self._place = self.epoch + 1, 0
        self._check_epoch(self.epoch)
        self._resumed = False
        return self._pass()

    def _pass(self) -> Iterator[Batch]:
        batches = self._batches
        start = self.epoch * batches.order.batches
        while self._place < len(self):
            if batches.position != start + self._place:
                batches.seek(start + self._place, self._memory)
            self._memory = None
            batch = batches.next()
            size = batches.order.batch_size
            left = min(size, batches.order.shard_size - self._place * size)
            self._place += 1
            yield batch._make(part[:left] for part in batch)
        while batches.position is not None and batches.position < start + batches.order.batches:
            batches.next()  # a last batch to be dropped
        self.epoch, self._place = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is; safe for `torch.save` and `torch.load(weights_only=True)`."""
        return {
            "epoch": self.epoch,
            "batch": self._place,
            "data": self._data(),
            "memory": self._batches.memory(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the batch after the last one that was handed out, exactly."""
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
        self._batches.position = None  # begin anew, wherever the pipeline is

    def _data(self) -> dict[str, int]:
        order = self._batches.order
        names = ("samples", "batch_size", "seed", "num_shards")
        return {name: getattr(order, name) for name in names}


def open_batches(
    feed: Feed,
    order: Order,
    device: str = "auto",
    workers: int | None = None,
    prefetch: int = 2,
) -> Batches:
    """Run a feed through DALI, or where it is missing on the host, with a warning."""
    if device == "auto":  # DALI and CuPy may see a GPU that this torch cannot use
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        import nvidia.dali  # noqa: F401
    except ImportError as error:
        warnings.warn(
            f"ddas_gpu reads with Pillow, which is slower, because DALI is missing: {error}",
            RuntimeWarning,
            stacklevel=4,
        )
        return feed.on_host(order, device.replace("gpu", "cuda"), workers)
    return DaliBatches(feed, order, device=device, num_threads=workers, prefetch=prefetch)
