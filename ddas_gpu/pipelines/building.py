"""The pipelines as one call each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddas_gpu.data.coco import Annotated
from ddas_gpu.pipelines.base_feed import BaseFeed
from ddas_gpu.pipelines.epochs import Epochs, ReaderEpochs
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.images import Images, Records, open_images
from ddas_gpu.pipelines.recipe import make_recipe
from ddas_gpu.policy import PolicySchedule

if TYPE_CHECKING:
    from ddas_gpu.pipelines.pipeline import ImagePipeline


def training_pipeline(
    root: Any,
    schedule: PolicySchedule | str | Path | None,
    batch_size: int = 256,
    epochs: int = 270,
    device: str = "auto",
    *,
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
    num_threads: int | None = None,
    prefetch: int = 2,
    **options: Any,
) -> ImagePipeline:
    """A DALI Pipeline of (images, labels): read, decode, crop, flip, policy, normalise, Cutout.

    Works in `DALIClassificationIterator(pipe, reader_name="Reader")` and its kin. Every epoch
    begins with a batch of its own, at the probabilities that `schedule` (a PolicySchedule or the
    path of its JSON; None for no policy) has for that epoch of `epochs`. What happens to a sample
    is a pure function of (seed, epoch, place of the sample in the data set); for .tar and .tfrecord
    files, which DALI shuffles, of its place in the epoch.

    root: a folder with a folder of images a class, .tar (WebDataset) or .tfrecord files, or a pair
        of arrays (images uint8 (N, H, W, 3), labels); see `ddas_gpu.pipelines.images`.
    device: "cpu", "gpu", or "auto" for a GPU if there is one.
    size: pixels a side or (height, width); files 224 by default, arrays have their own.
    crop: "resized" scales a random part of the image, "pad" shifts by up to `padding` pixels.
    cutout: side of a hole in the mean colour; 0 for none.
    mean, std: of the channels, in levels of 0 … 255.
    layout, dtype: NCHW or NHWC, float32 or float16.
    shard_id, num_shards: by default torch.distributed's rank and world size.
    on_bad_files: "skip" or "stop" looks through all image files first.
    first: the batch to begin with, counted over all epochs.
    prefetch: batches that are prepared ahead; `options` go to `nvidia.dali.Pipeline`.

    Labels are int32 (B, 1), as those of DALI's own readers.
    """
    feed, order = prepare(
        root,
        training=True,
        schedule=schedule,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        shard_id=shard_id,
        num_shards=num_shards,
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
    return make_pipeline(
        feed.from_batch(first),
        order,
        device=device,
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
    num_threads: int | None = None,
    prefetch: int = 2,
    **options: Any,
) -> ImagePipeline:
    """A DALI Pipeline of (images, labels) for testing: in order, and always the same.

    Where training takes a random part (crop="resized"), this takes the middle 224/256; where it
    pads, the whole image. The last batch is filled up with the last sample. For images in memory
    give the training set's `mean` and `std`. The rest is as in `training_pipeline`.
    """
    feed, order = prepare(
        root,
        training=False,
        batch_size=batch_size,
        shard_id=shard_id,
        num_shards=num_shards,
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
        num_threads=num_threads,
        prefetch=prefetch,
        **options,
    )


def prepare(
    root: Any,
    *,
    training: bool,
    batch_size: int,
    schedule: PolicySchedule | str | Path | None = None,
    epochs: int = 1,
    seed: int = 0,
    shard_id: int | None = None,
    num_shards: int | None = None,
    on_bad_files: str | None = None,
    **recipe: Any,
) -> tuple[Feed, Epochs]:
    """All that does not need DALI: what is in a batch, and which samples make up which batch."""
    check_epochs(epochs)
    policies = open_schedule(schedule, training)
    images = open_images(root, on_bad_files)
    feed = Feed(
        images,
        make_recipe(images, **recipe),
        training=training,
        seed=seed,
        schedule=policies,
        total_epochs=epochs,
    )
    return feed, order_of(images, batch_size, seed, shard_id, num_shards, shuffle=training)


def check_epochs(epochs: Any) -> None:
    if not isinstance(epochs, int) or epochs < 1:
        raise ValueError(f"epochs is the length of the training, 1 or more, not {epochs!r}")


def make_pipeline(feed: BaseFeed, order: Epochs, device: str, **options: Any) -> ImagePipeline:
    try:
        from ddas_gpu.pipelines.pipeline import ImagePipeline, on_gpu
    except ImportError as error:
        raise ImportError(
            "DALI pipelines need NVIDIA DALI, also on the CPU: install ddas_gpu[cuda13] or "
            f"ddas_gpu[cuda12], or use ddas_gpu.loader, which works without it ({error})"
        ) from error
    return ImagePipeline(feed, order, gpu=on_gpu(device), **options)


def open_schedule(
    schedule: PolicySchedule | str | Path | None, training: bool
) -> PolicySchedule | None:
    if schedule is not None and not training:
        raise ValueError("a schedule is for training: images to test on are not augmented")
    if schedule is None or isinstance(schedule, PolicySchedule):
        return schedule
    if isinstance(schedule, (str, Path)):
        return PolicySchedule.load(schedule)
    raise TypeError(
        f"schedule is a PolicySchedule or the path of its JSON, not {type(schedule).__name__}"
    )


def order_of(
    images: Images | Sequence[Annotated],
    batch_size: int,
    seed: int,
    shard_id: int | None,
    num_shards: int | None,
    shuffle: bool,
) -> Epochs:
    """The order of the images on this rank."""
    if (shard_id is None) != (num_shards is None):
        raise ValueError("shard_id and num_shards go together: give both or none")
    if shard_id is None:
        shard_id, num_shards = _rank()
    if isinstance(images, Records):
        # The number of samples is filled in when DALI has opened the files.
        return ReaderEpochs(num_shards, batch_size, seed, shard_id, num_shards, shuffle)
    return Epochs(len(images), batch_size, seed, shard_id, num_shards, shuffle)


def _rank() -> tuple[int, int]:
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
