"""The loader of images with labels: epochs of batches, with exact resume, for any trainer.

It runs the feed through DALI, or where that is missing on the host.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ddas_gpu.data.opening import open_images
from ddas_gpu.data.sources import Records
from ddas_gpu.pipelines.feed import Feed, LabelFeed
from ddas_gpu.pipelines.order import (
    Order,
    ReaderOrder,
    check_shards,
    require_one_seed,
    shard_of,
    torch_device,
)
from ddas_gpu.pipelines.samplers import BatchSampler, Sampler
from ddas_gpu.pipelines.transform import make_transform, require_known, require_levels
from ddas_gpu.policy import PolicyLike, open_schedule
from ddas_gpu.schema import check, require_same
from ddas_gpu.space import check_space
from ddas_gpu.streams import whole

if TYPE_CHECKING:
    from ddas_gpu.pipelines.batches import Batch, Batches

Shard = tuple[int | None, int | None]  # (shard_id, num_shards); None for torch.distributed's


def loader(
    root: Any,
    schedule: PolicyLike | None = None,
    batch_size: int = 256,
    epochs: int | None = None,
    device: str | torch.device = "auto",
    *,
    training: bool = True,
    drop_last: bool = False,
    shard_id: int | None = None,
    num_shards: int | None = None,
    device_id: int | None = None,
    num_threads: int | None = None,
    prefetch: int = 2,
    **settings: Any,
) -> Loader:
    """Return batches (images, labels) as tensors, ready for a model.

    >>> photographs, classes = np.zeros((8, 32, 32, 3), np.uint8), np.arange(8)
    >>> batches = loader((photographs, classes), "policy.json", batch_size=4, epochs=2)
    >>> for epoch in range(2):
    ...     for images, labels in batches:
    ...         assert images.shape == (4, 3, 32, 32) and labels.shape == (4,)

    root, schedule, epochs, device and `settings` are those of `training_pipeline`, or with
    training=False those of `evaluation_pipeline`. With torch.distributed each rank gets its share,
    also if it is initialised after this call. Without DALI the loader falls back, with a warning,
    to Pillow and torch.
    """
    require_known("loader", settings, loader, prepare, make_transform)
    check_shards(shard_id, num_shards)
    device = torch_device(device, device_id)
    feed, order = prepare(
        root,
        training=training,
        schedule=schedule,
        epochs=epochs,
        batch_size=batch_size,
        **settings,
    )
    warn_without_dali(feed)
    run = partial(open_batches, device=device, workers=num_threads, prefetch=prefetch)
    return Loader(feed, order, run, shard=(shard_id, num_shards), drop_last=drop_last)


def prepare(
    root: Any,
    *,
    training: bool,
    batch_size: int,
    schedule: PolicyLike | None = None,
    epochs: int | None = None,
    seed: int = 0,
    steps_per_epoch: int | None = None,
    shard: tuple[int, int] = (0, 1),
    on_bad_files: str | None = None,
    **transform: Any,
) -> tuple[LabelFeed, Order]:
    """Return what does not need DALI: the feed, and which samples make up which batch."""
    policies = open_schedule(schedule, epochs, training)
    if policies is not None:
        check_space(policies.space, False, "schedule", "which detection_loader reads")
    require_levels(transform.get("mean"), transform.get("std"))
    images = open_images(root, on_bad_files)
    made = make_transform(images, **transform)
    feed = LabelFeed(
        images,
        made,
        training=training,
        seed=seed,
        schedule=None if policies is None else policies.scaled(min(made.size)),
        total_epochs=1 if epochs is None else int(epochs),
    )
    # The number of samples in records is filled in when DALI has opened the files.
    kind, samples = (ReaderOrder, shard[1]) if isinstance(images, Records) else (Order, len(images))
    return feed, kind(samples, batch_size, seed, *shard, training, steps=steps_per_epoch)


def open_batches(
    feed: Feed,
    order: Order,
    device: str,
    workers: int | None = None,
    prefetch: int = 2,
) -> Batches:
    """Run a feed through DALI, or where it is missing on the host; `device` is torch's."""
    if dali_problem() is not None:
        return feed.on_host(order, device, workers)
    from ddas_gpu.pipelines.dali_pipeline import DaliBatches

    return DaliBatches(feed, order, device=device, num_threads=workers, prefetch=prefetch)


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
        self._compared = False  # whether all ranks have the seed of that shard
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
            self._batches = self._open(self._feed, self._order_of(shard))
            self._opened, self._compared = shard, False
        if not self._compared:  # nor could they be, before there was a process group
            self._compared = require_one_seed(self._order_of(shard))
        return self._batches

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        order = self.order
        full, rest = divmod(order.shard_size, order.batch_size)
        return full if self.drop_last or not rest else full + 1

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass that of `epoch`. Needed only to skip or repeat epochs."""
        epoch = whole("epoch", epoch)
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
        check(state, {"epoch": int, "batch": int, "data": dict}, "the state")
        require_same("loader", state["data"], self._data())
        self.epoch, self._place = state["epoch"], state["batch"]
        self._memory, self._resumed = state.get("memory"), True
        if self._batches is not None:
            self._batches.position = None  # begin anew, wherever the pipeline is

    def _data(self) -> dict[str, Any]:
        """Return what the batches depend on, in numbers and text."""
        order, feed = self.order, self._feed
        numbers = ("samples", "batch_size", "seed", "num_shards")
        looks = vars(feed.transform) | vars(feed.transform.output)
        return {
            **{name: int(getattr(order, name)) for name in numbers},
            "steps_per_epoch": order.steps,
            "drop_last": self.drop_last,
            **{name: str(value) for name, value in looks.items() if name != "output"},
            "policy": None if feed.schedule is None else feed.schedule.identity(),
            "epochs": None if feed.schedule is None else feed.total_epochs,
        }
