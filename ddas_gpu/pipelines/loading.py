"""(images, labels) for a model, with exact resume: what most trainers want of a pipeline."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch

from ddas_gpu.pipelines.base_feed import BaseFeed
from ddas_gpu.pipelines.building import make_pipeline, prepare
from ddas_gpu.pipelines.epochs import Epochs
from ddas_gpu.pipelines.images import Records
from ddas_gpu.pipelines.plain import OnDemand, PlainBatches
from ddas_gpu.policy import PolicySchedule

Batch = Any  # a NamedTuple of tensors with a row a sample, such as (images, labels)


class Batches(Protocol):
    """Batch after batch, from any batch on."""

    epochs: Epochs
    position: int | None  # the next batch, counted over all epochs; None before the first `seek`

    def seek(self, position: int, memory: Any = None) -> None: ...
    def next(self) -> Batch: ...
    def memory(self) -> Any:
        """What `seek` needs beside the position to come back here; tensors and numbers."""


class DaliBatches:
    """The batches of an ImagePipeline as torch tensors, on its device."""

    def __init__(self, feed: BaseFeed, epochs: Epochs, **options: Any) -> None:
        self._feed, self._options = feed, options
        self._order = epochs
        self._records = isinstance(feed.images, Records)
        self.position: int | None = None
        self._pipeline: Any = None

    @property
    def epochs(self) -> Epochs:
        if self._records:
            if self._pipeline is None:
                self.seek(0)
            self._pipeline.build()
            return self._pipeline.epochs
        return self._order

    def seek(self, position: int, memory: Any = None) -> None:
        """Files and arrays begin anywhere. DALI's own readers need a checkpoint of theirs, or
        begin their order anew."""
        first, options = position, dict(self._options)
        if self._records:
            options["enable_checkpointing"] = True
            if memory is not None:
                first = memory["first"]
                options["checkpoint"] = memory["checkpoint"].numpy().tobytes()
        self._pipeline = make_pipeline(self._feed.from_batch(first), self._order, **options)
        self.position = position

    def next(self) -> Batch:
        outputs = [torch.from_dlpack(out.as_tensor()) for out in self._pipeline.run()]
        self.position += 1
        return self._feed.pack(outputs)

    def memory(self) -> Any:
        if not self._records or self._pipeline is None:
            return None
        checkpoint = bytearray(self._pipeline.checkpoint())
        return {
            "first": self._pipeline.feed.first,
            "checkpoint": torch.frombuffer(checkpoint, dtype=torch.uint8),
        }


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
        epochs = self._batches.epochs
        full, rest = divmod(epochs.shard_size, epochs.batch_size)
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
        start = self.epoch * batches.epochs.batches
        while self._place < len(self):
            if batches.position != start + self._place:
                batches.seek(start + self._place, self._memory)
            self._memory = None
            batch = batches.next()
            size = batches.epochs.batch_size
            left = min(size, batches.epochs.shard_size - self._place * size)
            self._place += 1
            yield batch._make(part[:left] for part in batch)
        while batches.position is not None and batches.position < start + batches.epochs.batches:
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
        epochs = self._batches.epochs
        names = ("samples", "batch_size", "seed", "num_shards")
        return {name: getattr(epochs, name) for name in names}


def loader(
    root: Any,
    schedule: PolicySchedule | str | Path | None = None,
    batch_size: int = 256,
    epochs: int | None = None,
    device: str = "auto",
    *,
    training: bool = True,
    drop_last: bool = False,
    num_threads: int | None = None,
    prefetch: int = 2,
    **settings: Any,
) -> Loader:
    """Batches (images, labels) as tensors, ready for a model.

    >>> batches = loader("imagenet/train", "policy.json", batch_size=256, epochs=270)
    >>> for epoch in range(270):
    ...     for images, labels in batches:
    ...         loss = criterion(model(images), labels)

    root, schedule, epochs, device and `settings` are those of `training_pipeline`, or with
    training=False those of `evaluation_pipeline`. With torch.distributed each rank gets its share.
    Without DALI the loader falls back, with a warning, to Pillow and torch.
    """
    if schedule is not None and epochs is None:
        raise ValueError("a schedule needs the number of epochs that you train for: epochs=…")
    feed, order = prepare(
        root,
        training=training,
        schedule=schedule,
        epochs=1 if epochs is None else epochs,
        batch_size=batch_size,
        **settings,
    )
    return make_loader(feed, order, PlainBatches, epochs, drop_last, device, num_threads, prefetch)


def make_loader(
    feed: BaseFeed,
    order: Epochs,
    plain: type[OnDemand],
    epochs: int | None,
    drop_last: bool,
    device: str,
    num_threads: int | None,
    prefetch: int,
) -> Loader:
    """Through DALI, or where it is missing through `plain`."""
    if device == "auto" and not torch.cuda.is_available():
        device = "cpu"  # DALI and CuPy may see a GPU that this torch cannot use
    try:
        import nvidia.dali  # noqa: F401
    except ImportError as error:
        warnings.warn(
            f"ddas_gpu reads with Pillow, which is slower, because DALI is missing: {error}",
            RuntimeWarning,
            stacklevel=3,
        )
        place = "cpu" if device == "cpu" else "cuda"
        return Loader(plain(feed, order, place, num_threads), epochs, drop_last)
    batches = DaliBatches(feed, order, device=device, num_threads=num_threads, prefetch=prefetch)
    return Loader(batches, epochs, drop_last)
