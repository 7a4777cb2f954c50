"""The pipelines and loaders of images with boxes, one call each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ddas_gpu.data.coco import Coco
from ddas_gpu.data.opening import open_boxes
from ddas_gpu.ops.box_policies import MOST_BOXES
from ddas_gpu.pipelines.api import make_pipeline, require_known_options
from ddas_gpu.pipelines.box_feed import BoxFeed
from ddas_gpu.pipelines.loader import Loader, open_batches, warn_without_dali
from ddas_gpu.pipelines.order import Order, check_shards, require_one_seed, shard_of, torch_device
from ddas_gpu.pipelines.transform import (
    KeepRatio,
    Resize,
    make_box_transform,
    require_known,
    require_levels,
)
from ddas_gpu.policy import PolicyLike, open_schedule
from ddas_gpu.space import check_space

if TYPE_CHECKING:
    from ddas_gpu.pipelines.dali_pipeline import EpochPipeline


def detection_pipeline(
    source: Any,
    schedule: PolicyLike | None = None,
    batch_size: int = 16,
    epochs: int = 150,
    device: str | torch.device = "auto",
    *,
    training: bool = True,
    start_epoch: int = 0,
    steps_per_epoch: int | None = None,
    split: str = "train2017",
    keep_empty: bool = True,
    resize: int | tuple[int, int] | Resize = (800, 1333),
    flip: bool = True,
    mean: Any = None,
    std: Any = None,
    layout: str = "NCHW",
    dtype: str = "float32",
    seed: int = 0,
    shard_id: int | None = None,
    num_shards: int | None = None,
    first: int = 0,
    device_id: int | None = None,
    num_threads: int | None = None,
    prefetch: int = 2,
    **options: Any,
) -> EpochPipeline:
    """Return a DALI Pipeline of what `DetectionBatch` names: images, boxes, labels, …

    It reads, decodes, resizes, flips, applies the policy, normalises and pads.

    Works in `DALIGenericIterator(pipe, DetectionBatch._fields, reader_name="Reader")`. Every epoch
    begins with a batch of its own, at the probabilities that `schedule` has for that epoch of
    `epochs`; later epochs keep the last ones. What happens to a sample is a pure function of (seed,
    epoch, place of the sample in the source). Shifts and holes of the policy are scaled from the
    size of the search to that of the training.

    source: a folder in COCO's layout, of which `split` is read; an opened `Coco`; or a sequence of
        `Annotated`; see `ddas_gpu.data.coco` for what is made of crowds and odd boxes.
    training: False for testing: in order, without flip and policy.
    keep_empty: whether images without boxes stay; `ids` count those that stay.
    resize: the side of a square in pixels; or (shorter side, longest) to keep the ratio.
    mean, std: of the channels, in levels of 0 … 255; by default ImageNet's.
    The rest is as in `training_pipeline`.

    Images are padded at the right and below, to the largest of the batch in multiples of 32; so
    are their boxes, to the most of the batch, at least one.
    """
    require_known_options(detection_pipeline, options)
    feed, order = prepare_boxes(
        source,
        training=training,
        schedule=schedule,
        epochs=epochs,
        batch_size=batch_size,
        split=split,
        keep_empty=keep_empty,
        seed=seed,
        steps_per_epoch=steps_per_epoch,
        shard=shard_of(shard_id, num_shards),
        resize=resize,
        flip=flip,
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


def detection_loader(
    source: Any,
    schedule: PolicyLike | None = None,
    batch_size: int = 16,
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
    """Return batches for a detector as tensors: a `DetectionBatch` each.

        batches = detection_loader("data/coco", "policy.json", batch_size=16, epochs=150)
        for epoch in range(150):
            for batch in batches:
                losses = model(list(batch.images), batch.as_targets("torchvision"))

    source, schedule, epochs, device, training and `settings` are those of `detection_pipeline`.
    With torch.distributed each rank gets its share. Without DALI the loader falls back, with a
    warning, to Pillow and torch.
    """
    require_known("detection_loader", settings, detection_loader, prepare_boxes, make_box_transform)
    check_shards(shard_id, num_shards)
    device = torch_device(device, device_id)
    feed, order = prepare_boxes(
        source,
        training=training,
        schedule=schedule,
        epochs=epochs,
        batch_size=batch_size,
        **settings,
    )
    warn_without_dali(feed)
    run = partial(open_batches, device=device, workers=num_threads, prefetch=prefetch)
    return Loader(feed, order, run, shard=(shard_id, num_shards), drop_last=drop_last)


def prepare_boxes(
    source: Any,
    *,
    training: bool,
    schedule: PolicyLike | None,
    epochs: int | None,
    batch_size: int,
    split: str = "train2017",
    keep_empty: bool = True,
    seed: int = 0,
    steps_per_epoch: int | None = None,
    shard: tuple[int, int] = (0, 1),
    **transform: Any,
) -> tuple[BoxFeed, Order]:
    """Return what does not need DALI: the feed, and which samples make up which batch."""
    policies = open_schedule(schedule, epochs, training)
    require_levels(transform.get("mean"), transform.get("std"))
    made = make_box_transform(**transform)
    images = open_boxes(source, split, keep_empty)
    if policies is not None:
        resize = made.resize
        policies = policies.scaled(resize.short if isinstance(resize, KeepRatio) else resize.size)
        check_space(policies.space, True, "schedule")
        check_counts(images)
    feed = BoxFeed(
        images,
        made,
        training=training,
        seed=seed,
        schedule=policies,
        total_epochs=1 if epochs is None else int(epochs),
    )
    order = Order(len(images), batch_size, seed, *shard, training, steps=steps_per_epoch)
    return feed, order


def check_counts(source: Coco) -> None:
    """Raise a ValueError that names the image with too many boxes for a policy."""
    for image in source.images:
        if len(image.boxes) > MOST_BOXES:
            raise ValueError(
                f"{image.file} has {len(image.boxes)} boxes; with a policy at most {MOST_BOXES} "
                "are possible"
            )
