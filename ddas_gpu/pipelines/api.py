"""The DALI pipelines of images with labels, one call each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.loader import prepare
from ddas_gpu.pipelines.order import Order, gpu_number, require_one_seed, shard_of
from ddas_gpu.pipelines.transform import require_known
from ddas_gpu.policy import PolicyLike
from ddas_gpu.streams import whole

if TYPE_CHECKING:
    from ddas_gpu.pipelines.dali_pipeline import EpochPipeline


def training_pipeline(
    root: Any,
    schedule: PolicyLike | None,
    batch_size: int = 256,
    epochs: int = 270,
    device: str | torch.device = "auto",
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
    calls `set_epoch` on the pipeline, and gives DALI's iterator size=-1: see there.

    root: a folder with one folder of images per class, .tar (WebDataset) or .tfrecord files, a
        pair (images uint8 (N, H, W, 3), labels) or (paths, labels), or a torchvision data set of
        files; see `ddas_gpu.data.opening`.
    schedule: a PolicySchedule, what search_policy returned, the path of a policy.json or of a
        finished run; None for no policy.
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
        feed,
        order,
        device=device,
        first=first,
        start_epoch=start_epoch,
        device_id=device_id,
        num_threads=num_threads,
        prefetch=prefetch,
        **options,
    )


def evaluation_pipeline(
    root: Any,
    batch_size: int = 256,
    device: str | torch.device = "auto",
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
        feed,
        order,
        device=device,
        first=first,
        device_id=device_id,
        num_threads=num_threads,
        prefetch=prefetch,
        **options,
    )


def require_known_options(function: Callable[..., Any], options: dict[str, Any]) -> None:
    """Raise a TypeError for a keyword that neither the function nor DALI's Pipeline has."""
    if options:
        from nvidia.dali import Pipeline

        from ddas_gpu.pipelines.dali_pipeline import ImagePipeline

        known = (function, ImagePipeline.__init__, Pipeline.__init__)
        require_known(function.__name__, options, *known)


def make_pipeline(
    feed: Feed,
    order: Order,
    device: str | torch.device,
    *,
    first: int = 0,
    device_id: int | None = None,
    **options: Any,
) -> EpochPipeline:
    """Build a DALI pipeline, or raise an ImportError that says what to install.

    first: the batch to begin with; device, device_id: those of `gpu_number`.
    """
    feed = feed.from_batch(whole("first", first))
    try:
        from ddas_gpu.pipelines.dali_pipeline import EpochPipeline
    except ImportError as error:
        raise ImportError(
            "DALI pipelines need NVIDIA DALI, also on the CPU: install ddas_gpu[cuda13] or "
            f"ddas_gpu[cuda12], or use ddas_gpu.loader, which works without it ({error})"
        ) from error
    return EpochPipeline(feed, order, device_id=gpu_number(device, device_id), **options)
