"""From COCO on disk to all of its training and test images."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddas_gpu import streams
from ddas_gpu.data.coco import Coco, open_coco
from ddas_gpu.data.locating import find_root
from ddas_gpu.pipelines.images import ImageFiles, open_images
from ddas_gpu.streams import Stream

if TYPE_CHECKING:
    from ddas_gpu.train.settings import DataSettings


def coco_full_sets(settings: DataSettings, seed: int) -> tuple[Coco, Coco]:
    """train2017 to train on and val2017 to test on, or a share of each, drawn at random.

    `drop_empty` is for training alone: a test without the images in which there is nothing to find
    would not count what is found there by mistake.
    """
    root = find_root("coco", settings.root)
    test_root = root if settings.test_root is None else find_root("coco", settings.test_root)
    train = open_coco(root, "train2017", keep_empty=not settings.drop_empty)
    test = open_coco(test_root, "val2017")
    if train.class_names != test.class_names:
        differ = sorted(set(train.class_names) ^ set(test.class_names)) or ["them in another order"]
        raise ValueError(
            f"train2017 of {root} and val2017 of {test_root} must have the same categories, but "
            f"only one of them has {', '.join(differ[:5])}"
        )
    generator = streams.generator(seed, Stream.SPLIT)
    shares = (train, settings.train_share), (test, settings.test_share)
    parts = (_part(coco, share, generator) for coco, share in shares)
    train, test = (readable(part, settings.bad_files) for part in parts)
    if not any(len(image.objects()[0]) for image in test.images):
        raise ValueError(
            f"none of the {len(test.images)} test images of {test_root / 'val2017'} has a box: "
            "there is nothing to find"
        )
    return train, test


def _part(coco: Coco, share: float, generator: np.random.Generator) -> Coco:
    count = max(1, round(share * len(coco.images)))
    order = generator.permutation(len(coco.images))[:count]
    return replace(coco, images=[coco.images[index] for index in np.sort(order)])


def readable(coco: Coco, bad_files: str) -> Coco:
    """Look through the image files, and stop at unreadable ones or go on without them."""
    if bad_files == "trust":
        return coco
    files, numbers = [image.file for image in coco.images], np.arange(len(coco.images))
    kept = open_images(ImageFiles(files, numbers), bad_files).labels
    return replace(coco, images=[coco.images[index] for index in kept])
