"""The pipelines and loaders of images with labels, one call each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddas_gpu.data.opening import open_images
from ddas_gpu.data.sources import Records
from ddas_gpu.pipelines.batches import make_pipeline, open_batches, warn_without_dali
from ddas_gpu.pipelines.feed import LabelFeed
from ddas_gpu.pipelines.loader import Loader
from ddas_gpu.pipelines.order import Order, ReaderOrder, check_shards, require_one_seed, shard_of
from ddas_gpu.pipelines.transform import make_transform, require_known, require_levels
from ddas_gpu.policy import PolicySchedule

if TYPE_CHECKING:
    from ddas_gpu.pipelines.dali_pipeline import EpochPipeline


def training_pipeline(
    root: Any,
    schedule: PolicySchedule | str | Path | None,
    batch_size: int = 256,
    epochs: int = 270,
    device: str = "auto",
    *,
    start_epoch: int = 0,
    steps_per_epoch: int | None = None,
    size: int | tuple[int, int] | None = None,
    crop: str | None = None,
    padding: int = 4,
    flip: bool = True,
    cutout: int = 0,
    mean: Any = None,
    std: Any = None,
    layout: str = "NCHW",
    dtype: str = "float32",
    seed: int = 0,
    shard_id: int | None = None,
    num_shards: int | None = None,
    on_bad_files: str | None = None,
    first: int = 0,
    device_id: int | None = None,
    num_threads: int | None = None,
    prefetch: int = 2,
    **options: Any,
) -> EpochPipeline:
    """Return a DALI Pipeline of (images, labels).

    It reads, decodes, crops, flips, applies the policy, normalises and cuts out.

    Works in `DALIClassificationIterator(pipe, reader_name="Reader")` and its kin. Every epoch
    begins with a batch of its own, at the probabilities that `schedule` has for that epoch of
    `epochs`; later epochs keep the last ones. What happens to a sample
    is a pure function of (seed, epoch, place of the sample in the data set); for .tar and .tfrecord
    files, which DALI shuffles, of its place in the epoch. Shifts and holes of the policy are
    scaled from the size of the search to that of the training. A trainer that leaves epochs early
    calls `set_epoch` on the pipeline.

    root: a folder with one folder of images per class, .tar (WebDataset) or .tfrecord files, a
        pair (images uint8 (N, H, W, 3), labels) or (paths, labels), or a torchvision data set of
        files; see `ddas_gpu.data.opening`.
    schedule: a PolicySchedule, the path of its JSON or of a finished run; None for no policy.
    device: "cpu", "cuda", or "auto" for a GPU if there is one; `device_id` is the GPU's number.
    start_epoch: the epoch to begin with.
    steps_per_epoch: batches per epoch, if not those that show every image once.
    size: pixels per side or (height, width); files 224 by default, arrays have their own.
    crop: "resized" scales a random part of the image, "pad" shifts by up to `padding` pixels.
    cutout: side of a hole in the mean colour; 0 for none.
    mean, std: of the channels, in levels of 0 … 255: torchvision's times 255.
    layout, dtype: NCHW or NHWC, float32 or float16.
    seed: the same on all ranks.
    shard_id, num_shards: by default torch.distributed's rank and world size.
    on_bad_files: "skip" or "stop" looks through all image files first.
    first: the batch to begin with, counted over all epochs.
    prefetch: batches that are prepared ahead; `options` go to `nvidia.dali.Pipeline`.

    Labels are int32 (B, 1), as those of DALI's own readers.
    """
    require_known_options(training_pipeline, options)
    feed, order = prepare(
        root,
        training=True,
        schedule=schedule,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        steps_per_epoch=steps_per_epoch,
        shard=shard_of(shard_id, num_shards),
        on_bad_files=on_bad_files,
        size=size,
        crop=crop,
        padding=padding,
        flip=flip,
        cutout=cutout,
        mean=mean,
        std=std,
        layout=layout,
        dtype=dtype,
    )
    require_one_seed(order)
    return make_pipeline(
        feed.from_batch(first),
        order,
        device=device,
        start_epoch=start_epoch,
        device_id=device_id,
        num_threads=num_threads,
        prefetch=prefetch,
        **options,
    )


def evaluation_pipeline(
    root: Any,
    batch_size: int = 256,
    device: str = "auto",
    *,
    size: int | tuple[int, int] | None = None,
    crop: str | None = None,
    mean: Any = None,
    std: Any = None,
    layout: str = "NCHW",
    dtype: str = "float32",
    shard_id: int | None = None,
    num_shards: int | None = None,
    on_bad_files: str | None = None,
    first: int = 0,
    device_id: int | None = None,
    num_threads: int | None = None,
    prefetch: int = 2,
    **options: Any,
) -> EpochPipeline:
    """Return a DALI Pipeline of (images, labels) for testing: in order, and always the same.

    Where training takes a random part (crop="resized"), this takes the middle 224/256; where it
    pads, the whole image. The last batch is filled up with the last sample. For images in memory
    give the training set's `mean` and `std`. The rest is as in `training_pipeline`.
    """
    require_known_options(evaluation_pipeline, options)
    feed, order = prepare(
        root,
        training=False,
        batch_size=batch_size,
        shard=shard_of(shard_id, num_shards),
        on_bad_files=on_bad_files,
        size=size,
        crop=crop,
        mean=mean,
        std=std,
        layout=layout,
        dtype=dtype,
    )
    return make_pipeline(
        feed.from_batch(first),
        order,
        device=device,
        device_id=device_id,
        num_threads=num_threads,
        prefetch=prefetch,
        **options,
    )


def loader(
    root: Any,
    schedule: PolicySchedule | str | Path | None = None,
    batch_size: int = 256,
    epochs: int | None = None,
    device: str = "auto",
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
    require_epochs(schedule, epochs)
    check_shards(shard_id, num_shards)
    feed, order = prepare(
        root,
        training=training,
        schedule=schedule,
        epochs=1 if epochs is None else epochs,
        batch_size=batch_size,
        **settings,
    )
    warn_without_dali(feed)
    run = partial(
        open_batches, device=device, workers=num_threads, prefetch=prefetch, device_id=device_id
    )
    return Loader(feed, order, run, shard=(shard_id, num_shards), drop_last=drop_last)


def prepare(
    root: Any,
    *,
    training: bool,
    batch_size: int,
    schedule: PolicySchedule | str | Path | None = None,
    epochs: int = 1,
    seed: int = 0,
    steps_per_epoch: int | None = None,
    shard: tuple[int, int] = (0, 1),
    on_bad_files: str | None = None,
    **transform: Any,
) -> tuple[LabelFeed, Order]:
    """Return what does not need DALI: the feed, and which samples make up which batch."""
    policies = open_schedule(schedule, epochs, training)
    require_levels(transform.get("mean"), transform.get("std"))
    images = open_images(root, on_bad_files)
    made = make_transform(images, **transform)
    feed = LabelFeed(
        images,
        made,
        training=training,
        seed=seed,
        schedule=None if policies is None else policies.scaled(min(made.size)),
        total_epochs=epochs,
    )
    # The number of samples in records is filled in when DALI has opened the files.
    kind, samples = (ReaderOrder, shard[1]) if isinstance(images, Records) else (Order, len(images))
    return feed, kind(samples, batch_size, seed, *shard, training, steps=steps_per_epoch)


def open_schedule(
    schedule: PolicySchedule | str | Path | None, epochs: Any, training: bool
) -> PolicySchedule | None:
    """Return the schedule of a training of `epochs`, read from its file if need be."""
    if not isinstance(epochs, int) or epochs < 1:
        raise ValueError(f"epochs is the length of the training, 1 or more, not {epochs!r}")
    if schedule is not None and not training:
        raise ValueError("a schedule is for training: images to test on are not augmented")
    if schedule is None or isinstance(schedule, PolicySchedule):
        return schedule
    if isinstance(schedule, (str, Path)):
        return PolicySchedule.load(schedule)
    raise TypeError(
        f"schedule is a PolicySchedule or the path of its JSON, not {type(schedule).__name__}"
    )


def require_epochs(schedule: Any, epochs: int | None) -> None:
    """Raise a ValueError if a schedule has no number of epochs to be spread over."""
    if schedule is not None and epochs is None:
        raise ValueError("a schedule needs the number of epochs that you train for: epochs=…")


def require_known_options(function: Callable[..., Any], options: dict[str, Any]) -> None:
    """Raise a TypeError for a keyword that neither the function nor DALI's Pipeline has."""
    if options:
        from nvidia.dali import Pipeline

        from ddas_gpu.pipelines.dali_pipeline import ImagePipeline

        known = (function, ImagePipeline.__init__, Pipeline.__init__)
        require_known(function.__name__, options, *known)
