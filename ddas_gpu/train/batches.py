"""The batches of a training: any step's on demand, so that a run resumes anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch

from ddas_gpu.data.full_sets import FileSource, FullSets
from ddas_gpu.data.sources import ArraySource
from ddas_gpu.distributed.ranks import ALONE, Ranks
from ddas_gpu.ops import augment
from ddas_gpu.pipelines import loader
from ddas_gpu.pipelines.building import prepare
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.images import open_images
from ddas_gpu.pipelines.recipe import Recipe
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.train.settings import TrainSettings

Batch = tuple[torch.Tensor, torch.Tensor]  # float (B, 3, H, W), int64 (B,)


class TrainingBatches(Protocol):
    steps_per_epoch: int

    def batch(self, step: int) -> Batch:
        """The batch of a step, counted over all epochs: a pure function of its number."""
        ...


class TestBatches(Protocol):
    def __iter__(self) -> Iterator[Batch]:
        """All test images, once."""
        ...


class ArrayBatches:
    """Images in memory, augmented where the network is."""

    def __init__(self, feed: Feed, order: Any, device: torch.device) -> None:
        self._feed, self._order, self._device = feed, order, device
        # A last step that is not full on all ranks is left out; every epoch leaves out others.
        self.steps_per_epoch = order.samples // (order.batch_size * order.num_shards)

    def batch(self, step: int) -> Batch:
        epoch, place = divmod(step, self.steps_per_epoch)
        samples = self._order.batch(epoch, place)
        made = self._feed.batch(epoch, samples)
        pixels = torch.from_numpy(made["images"]).to(self._device)
        if self._feed.schedule is not None:
            policies, key, samples = self._feed.order(epoch, samples)
            pixels = augment(pixels, policies, self._feed.schedule.space, key, samples=samples)
        inputs = normalised(pixels, self._feed.recipe)
        if "holes" in made:
            cut_holes(inputs, made["holes"], self._feed.recipe.cutout)
        labels = torch.from_numpy(made["labels"][:, 0].astype(np.int64))
        return inputs, labels.to(self._device)


class ArrayTest:
    """Test images in memory, as they are; of several ranks each has a block of them."""

    def __init__(
        self, source: ArraySource, recipe: Recipe, size: int, device: torch.device, ranks: Ranks
    ) -> None:
        self._source, self._recipe, self._size, self._device = source, recipe, size, device
        count = len(source.labels)
        self._block = range(*(count * (ranks.rank + i) // ranks.count for i in (0, 1)))

    def __iter__(self) -> Iterator[Batch]:
        for start in self._block[:: self._size]:
            part = slice(start, min(start + self._size, self._block.stop))
            pixels = torch.from_numpy(self._source.images[part]).to(self._device)
            labels = torch.from_numpy(self._source.labels[part]).to(self._device)
            yield normalised(pixels, self._recipe), labels


class LoaderBatches:
    """Image files, read and augmented by a loader of ours ahead of the network."""

    def __init__(self, batches: Any) -> None:
        self._loader = batches
        # The loader fills a last step up; it is left out, as for images in memory.
        order = batches.state_dict()["data"]
        self.steps_per_epoch = order["samples"] // (order["batch_size"] * order["num_shards"])
        self._next: int | None = None
        self._iterator: Iterator[Any] = iter(())

    def batch(self, step: int) -> Any:
        epoch, place = divmod(step, self.steps_per_epoch)
        if step != self._next:
            here = {"epoch": epoch, "batch": place, "memory": None}
            self._loader.load_state_dict(self._loader.state_dict() | here)
            self._iterator = iter(self._loader)
        elif place == 0:
            for _ in self._iterator:  # lets the last epoch come to its end
                pass
            self._iterator = iter(self._loader)
        self._next = step + 1
        return next(self._iterator)


def readable(sets: FullSets, bad_files: str) -> FullSets:
    """Look through image files, and stop at unreadable ones or go on without them."""
    if bad_files == "trust" or not isinstance(sets.train, FileSource):
        return sets
    checked = (open_images(source, bad_files) for source in (sets.train, sets.test))
    return FullSets(*(FileSource(c.files, c.labels, sets.class_names) for c in checked))


def batch_size(settings: TrainSettings, images: int, ranks: Ranks) -> int:
    """Images in a step of this rank; a ValueError if the set has too few for all ranks."""
    batch, at_start = settings.training.batch_size, settings.run.ranks
    if batch * at_start > images:
        on_all = f" on {at_start} ranks" if at_start > 1 else ""
        raise ValueError(
            f"--batch-size {batch}{on_all} is larger than the set, "
            f"which has {images} training images"
        )
    return ranks.share("--batch-size", batch, at_start).size


def open_batches(
    settings: TrainSettings,
    sets: FullSets,
    schedule: PolicySchedule | None,
    device: torch.device,
    ranks: Ranks = ALONE,
) -> tuple[TrainingBatches, TestBatches]:
    """This rank's batches of a training, and those of its evaluation."""
    data, training = settings.data, settings.training
    common = {
        "schedule": schedule,
        "batch_size": batch_size(settings, len(sets.train.labels), ranks),
        "epochs": training.epochs,
        "seed": settings.run.seed,
        "padding": data.padding,
        "flip": data.flip,
        "cutout": data.cutout,
    }
    shard = {"shard_id": ranks.rank, "num_shards": ranks.count}
    if isinstance(sets.train, FileSource):
        return _from_files(settings, sets, device, common, shard)
    arrays = (sets.train.images, sets.train.labels)
    feed, order = prepare(arrays, training=True, **common, **shard)
    test = ArrayTest(sets.test, feed.recipe, training.test_batch_size, device, ranks)
    return ArrayBatches(feed, order, device), test


def _from_files(
    settings: TrainSettings,
    sets: FullSets,
    device: torch.device,
    common: dict[str, Any],
    shard: dict[str, int],
) -> tuple[TrainingBatches, TestBatches]:
    data = settings.data
    options = {
        "size": data.image_size,
        "crop": data.crop,
        "device": "gpu" if device.type == "cuda" else "cpu",
        "num_threads": settings.data.workers or settings.run.threads,
        **shard,
    }
    train = loader(sets.train, drop_last=True, **common, **options)
    size = settings.training.test_batch_size
    test = loader(sets.test, training=False, batch_size=size, **options)
    return LoaderBatches(train), EveryTime(test)


class EveryTime:
    """The same pass over a loader again and again."""

    def __init__(self, batches: Any) -> None:
        self._loader = batches

    def __iter__(self) -> Iterator[Any]:
        self._loader.set_epoch(0)
        return iter(self._loader)


def normalised(pixels: torch.Tensor, recipe: Recipe) -> torch.Tensor:
    """uint8 (B, H, W, 3) to float (B, 3, H, W) with mean 0 and deviation 1."""
    mean, deviation = (
        torch.tensor(values, dtype=torch.float32, device=pixels.device)
        for values in (recipe.mean, recipe.deviation)
    )
    return ((pixels.float() - mean) / deviation).movedim(-1, -3)


def cut_holes(inputs: torch.Tensor, corners: np.ndarray, side: int) -> None:
    """Cutout: a square of 0, the mean colour, from each corner (row, column) on."""
    first = torch.from_numpy(corners).to(inputs.device).long()
    inside = []
    for axis, length in enumerate(inputs.shape[2:]):
        place = torch.arange(length, device=inputs.device) - first[:, axis, None]
        inside.append((place >= 0) & (place < side))
    rows, columns = inside
    inputs.masked_fill_((rows[:, :, None] & columns[:, None, :])[:, None], 0.0)
