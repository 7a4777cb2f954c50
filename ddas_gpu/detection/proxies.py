"""From COCO on disk to the training and validation set of the search."""

from __future__ import annotations

from ddas_gpu import streams
from ddas_gpu.data.coco import open_coco
from ddas_gpu.data.locating import find_root
from ddas_gpu.detection.sets import DetectionSet
from ddas_gpu.detection.transforms import KeepRatio, Resize, Square
from ddas_gpu.search.settings import DataSettings
from ddas_gpu.streams import Stream


def coco_sets(settings: DataSettings, seed: int) -> tuple[DetectionSet, DetectionSet]:
    """The training and the validation set of a search, disjoint, drawn at random.

    Both come out of train2017, as in the paper, or with `val_root` the second out of another
    folder's train2017 with the same classes.
    """
    if settings.classes is not None:
        raise ValueError("--classes is for classification: on COCO the search has all classes")
    if settings.sanity_check and settings.resize != "square":
        raise ValueError("--sanity-check turns images by 90°: they must be square, --resize square")
    generator = streams.generator(seed, Stream.SPLIT)
    keep_empty = not settings.drop_empty
    coco = open_coco(find_root("coco", settings.root), keep_empty=keep_empty)
    wanted = settings.train_images + (0 if settings.val_root else settings.val_images)
    order = generator.permutation(len(coco.images))
    _check_enough(len(order), wanted)
    chosen = [coco.images[i] for i in order]
    train, validation = chosen[: settings.train_images], chosen[settings.train_images : wanted]
    if settings.val_root is not None:
        other = open_coco(find_root("coco", settings.val_root), keep_empty=keep_empty)
        if other.class_names != coco.class_names:
            raise ValueError(
                f"--val-root {settings.val_root} must have the same categories as the training "
                "images"
            )
        _check_enough(len(other.images), settings.val_images)
        order = generator.permutation(len(other.images))[: settings.val_images]
        validation = [other.images[i] for i in order]
    resize = resize_for(settings.resize, settings.image_size)
    train_set = DetectionSet(train, coco.class_names, resize, settings.flip)
    val_set = DetectionSet(validation, coco.class_names, resize)
    return train_set, val_set.turned() if settings.sanity_check == "rotate90" else val_set


def resize_for(kind: str, size: int) -> Resize:
    """What --resize and --image-size mean."""
    return KeepRatio(size, round(size * 1333 / 800)) if kind == "keep-ratio" else Square(size)


def _check_enough(available: int, wanted: int) -> None:
    if wanted > available:
        raise ValueError(
            f"{wanted} images are wanted, but there are only {available}: "
            "lower --train-images or --val-images"
        )
