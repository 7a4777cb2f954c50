"""Batch after batch of a feed, from any batch on: through DALI, or on the host without it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ddas_gpu.data.datasets import Examples
from ddas_gpu.data.sources import ImageArrays, Records
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.order import Order

if TYPE_CHECKING:
    from ddas_gpu.pipelines.dali_pipeline import EpochPipeline


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
        assert self.position is not None, "seek comes before the first batch"
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
) -> EpochPipeline:
    """Build a DALI pipeline, or raise an ImportError that says what to install.

    device, device_id: those of `dali.gpu_number`.
    """
    try:
        from ddas_gpu.pipelines.dali_pipeline import EpochPipeline, gpu_number
    except ImportError as error:
        raise ImportError(
            "DALI pipelines need NVIDIA DALI, also on the CPU: install ddas_gpu[cuda13] or "
            f"ddas_gpu[cuda12], or use ddas_gpu.loader, which works without it ({error})"
        ) from error
    return EpochPipeline(feed, order, device_id=gpu_number(device, device_id), **options)


def open_batches(
    feed: Feed,
    order: Order,
    device: str = "auto",
    workers: int | None = None,
    prefetch: int = 2,
    device_id: int | None = None,
) -> Batches:
    """Run a feed through DALI, or where it is missing on the host."""
    if device == "auto":  # DALI and CuPy may see a GPU that this torch cannot use
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dali_problem() is not None:
        place = device.replace("gpu", "cuda")
        if place == "cuda" and device_id is not None:
            place = f"cuda:{device_id}"
        return feed.on_host(order, place, workers)
    return DaliBatches(
        feed, order, device=device, device_id=device_id, num_threads=workers, prefetch=prefetch
    )


def batches_of(feed: Feed, order: Order, device: str, workers: int | None) -> Batches:
    """Run files in DALI; on the host what is in memory, and a user's data set."""
    if isinstance(feed.source, (ImageArrays, Examples)):
        return feed.on_host(order, device, workers)
    warn_without_dali(feed)
    return open_batches(feed, order, device, workers)


def warn_without_dali(feed: Feed) -> None:
    """Warn that images will be read with Pillow; raise a ValueError if they cannot be."""
    problem = dali_problem()
    if problem is None:
        return
    warnings.warn(
        f"ddas_gpu reads with Pillow, which is slower, because DALI is missing: {problem}",
        RuntimeWarning,
        stacklevel=3,
    )
    if isinstance(feed.source, Records):
        raise ValueError("reading .tar and .tfrecord files needs DALI: install ddas_gpu[cuda13]")


def dali_problem() -> ImportError | None:
    """Return why DALI cannot be imported."""
    try:
        import nvidia.dali  # noqa: F401
    except ImportError as error:
        return error
    return None
