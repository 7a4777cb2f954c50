"""Images with boxes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ddas_gpu import streams
from ddas_gpu.data import splits
from ddas_gpu.data.coco import Coco
from ddas_gpu.data.opening import checked
from ddas_gpu.data.sources import require_same_classes
from ddas_gpu.detection.losses import detection_loss, targets_for
from ddas_gpu.detection.precision import require_pycocotools
from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.models import build
from ddas_gpu.models.backbone_weights import load_backbone
from ddas_gpu.models.frozen_batch_norm import freeze_batch_norm
from ddas_gpu.models.registry import is_own, try_out
from ddas_gpu.models.retinanet import anchors_for
from ddas_gpu.ops import augment_boxes
from ddas_gpu.pipelines.box_api import check_counts
from ddas_gpu.pipelines.box_feed import BoxFeed, CleanExamples, DetectionBatch, Examples
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.order import Order, spread
from ddas_gpu.pipelines.pixels import normalise_and_pad
from ddas_gpu.pipelines.transform import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    KeepRatio,
    Resize,
    Square,
    make_box_transform,
)
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import SearchSpace
from ddas_gpu.streams import Stream
from ddas_gpu.tasks.detector_evaluation import evaluate_detector
from ddas_gpu.tasks.facts import FACTS
from ddas_gpu.tasks.task import TEST, TRAIN, VALIDATE, Task, Versions

Tensors = dict[str, torch.Tensor]

SAMPLES = 8
NEXT_POLICY = 1 << 32  # beyond every sample's number: each policy draws for itself


class Detection(Task):
    """Every version of a batch has boxes of its own, moved with its pixels."""

    facts = FACTS["detection"]

    def search_sets(self) -> tuple[Coco, Coco]:
        data, generator = self.data, streams.generator(self.seed, Stream.SPLIT)
        if data.sanity_check and data.resize != "square":
            raise ValueError(
                "--sanity-check rotates images by 90°: they must be square, --resize square"
            )
        source = self._open(data.root, data.drop_empty)
        other = None if data.val_root is None else self._open_val_root(data.drop_empty)
        sizes = self.fit_sizes(len(source), None if other is None else len(other))
        if other is None:
            train, val = splits.random_sets(source, sizes, generator)
        else:
            require_same_classes(source, other, f"--val-root {data.val_root}")
            (train,) = splits.random_sets(source, sizes[:1], generator)
            (val,) = splits.random_sets(other, sizes[1:], generator)
        train, val = checked((train, val), data.bad_files)
        self.fit_batches(train, val)
        whole = len(source) + (0 if other is None else len(other))
        self.note_found(whole, len(train.class_names), {TRAIN: train, VALIDATE: val})
        return train, val

    def _open_val_root(self, drop_empty: bool) -> Coco:
        root = self.data.val_root
        if not root.is_dir():  # scenes would be written to it
            raise ValueError(f"--val-root: there is no folder {root}")
        return self._open(root, drop_empty)

    def _open(self, root: Path | None, drop_empty: bool) -> Coco:
        source = self.spec.reader.search_images(self.root_of(root), self.data.image_size)
        return source.without_empty() if drop_empty else source

    def training_sets(self) -> tuple[Coco, Coco]:
        """Return train2017 and val2017, or a share of each, drawn at random.

        --drop-empty is for training alone: a test without the images in which there is nothing to
        find would not count what is found there by mistake.
        """
        require_pycocotools()  # now, not when the first epochs are over
        data, generator = self.data, streams.generator(self.seed, Stream.SPLIT)
        root = self.root_of(data.root)
        test_root = root if data.test_root is None else self.root_of(data.test_root)
        train, test = self.spec.reader.training_images(root, test_root, data.image_size)
        require_same_classes(train, test, f"val2017 of {test_root}")
        whole = len(train) + len(test)
        train = train.without_empty() if data.drop_empty else train
        train = splits.random_share(train, data.train_share, generator)
        test = splits.random_share(test, data.test_share, generator)
        train, test = checked((train, test), data.bad_files)
        if not any(len(image.objects()[0]) for image in test.images):
            raise ValueError(
                f"none of the {len(test)} test images of {test_root}/val2017 has a box: "
                "there is nothing to find"
            )
        self.note_found(whole, len(train.class_names), {TRAIN: train, TEST: test})
        return train, test

    def validation_set(self, train: Coco) -> Coco:
        source = self._open_val_root(drop_empty=False)  # as in the test
        require_same_classes(train, source, f"--val-root {self.data.val_root}")
        (source,) = checked([source], self.data.bad_files)
        self.note_validation(source)
        return source

    def clean_feed(self, source: Coco, *, training: bool) -> BoxFeed:
        rotate90 = self.data.sanity_check == "rotate90" and not training
        return self._feed(source, training, rotate90, clean=True)

    def model_feed(
        self,
        source: Coco,
        *,
        training: bool,
        schedule: PolicySchedule | None = None,
        like: Feed | None = None,  # all are normalised as ImageNet's images
    ) -> BoxFeed:
        if schedule is not None:
            check_counts(source)
        epochs = self.settings.training.epochs
        return self._feed(source, training, schedule=schedule, total_epochs=epochs)

    def _feed(self, source: Coco, training: bool, rotate90: bool = False, **feed: Any) -> BoxFeed:
        resize = resize_for(self.data.resize, self.data.image_size)
        transform = make_box_transform(resize=resize, flip=self.data.flip, rotate90=rotate90)
        return BoxFeed(source, transform, training=training, seed=self.seed, **feed)

    def samples(self, source: Coco) -> dict[str, Any]:
        """Return up to eight images with their boxes, evenly spread, without a policy."""
        chosen = source.subset(spread(len(source), SAMPLES))
        feed = self._feed(chosen, training=False, clean=True)
        batches = feed.on_host(Order(len(chosen), len(chosen), shuffle=False), "cpu", None)
        batches.seek(0)
        return sample_arrays(batches.next().examples, source.class_names)

    def build_model(self, class_names: tuple[str, ...]) -> nn.Module:
        self.require_own_model()
        training = self.settings.training
        model = build(training.model, len(class_names))
        if training.backbone is not None:
            load_backbone(model.get_submodule("backbone"), training.backbone)
        if training.frozen_norm:
            freeze_batch_norm(model)
        model = model.to(self.device)
        if is_own(training.model):
            self._require_predictions(model, len(class_names))
        return model

    def _require_predictions(self, model: nn.Module, classes: int) -> None:
        """Raise a ValueError if a user's own model does not predict as `RetinaNet` does."""
        name, images = self.settings.training.model, torch.zeros(1, 3, 128, 128, device=self.device)
        anchors = len(anchors_for(128, 128))
        wanted = {"logits": (1, anchors, classes), "deltas": (1, anchors, 4)}
        outputs = try_out(name, model, images)
        tensors = outputs.items() if isinstance(outputs, dict) else ()
        found = {key: tuple(value.shape) for key, value in tensors if torch.is_tensor(value)}
        if found != wanted:
            raise ValueError(
                f"model {name!r} must make {wanted} of images {tuple(images.shape)}, as RetinaNet "
                f"does, not {found or type(outputs).__name__}"
            )

    def versions(self, batch: CleanExamples, policies: np.ndarray, space: SearchSpace) -> Versions:
        clean, count, size = batch.examples, len(policies), len(batch.samples)
        samples = NEXT_POLICY * np.arange(count)[:, None] + batch.samples
        augmented = augment_boxes(
            clean.images * count,
            clean.boxes * count,
            clean.labels * count,
            policies.repeat(size, axis=0),
            space,
            streams.sign_key(self.seed, batch.epoch),
            samples=samples.reshape(-1),
        )
        in_all = Examples(*(old + new for old, new in zip(clean, augmented, strict=True)))
        inputs = self._inputs(in_all.images)
        versions = [
            Examples(*(column[start : start + size] for column in in_all))
            for start in range(0, len(in_all.images), size)
        ]
        targets = [self._targets(v.boxes, v.labels, inputs) for v in versions]
        return Versions(
            inputs.unflatten(0, (count + 1, size)),
            counted_on_all_ranks(targets, self.ranks),
            torch.stack([same(version, clean) for version in versions[1:]]),
        )

    def validation_inputs(self, batch: CleanExamples) -> tuple[torch.Tensor, Tensors]:
        examples = batch.examples
        inputs = self._inputs(examples.images)
        targets = self._targets(examples.boxes, examples.labels, inputs)
        return inputs, counted_on_all_ranks([targets], self.ranks)[0]

    def training_inputs(self, batch: DetectionBatch) -> tuple[torch.Tensor, Tensors]:
        targets = self._targets(batch.boxes, batch.labels, batch.images)
        return batch.images, counted_on_all_ranks([targets], self.ranks)[0]

    def _inputs(self, images: Sequence[torch.Tensor]) -> torch.Tensor:
        return normalise_and_pad(images, IMAGENET_MEAN, IMAGENET_STD, self.device)

    def _targets(self, boxes: Any, labels: Any, inputs: torch.Tensor) -> Tensors:
        scale = self.settings.training.anchor_scale
        anchors = anchors_for(*inputs.shape[-2:], scale).to(self.device)
        return targets_for(anchors, boxes, labels)

    def loss(self, outputs: Tensors, targets: Tensors) -> torch.Tensor:
        # Sums over all anchors are beyond the range of 16 bits.
        half = (torch.float16, torch.bfloat16)
        wide = {name: v.float() if v.dtype in half else v for name, v in outputs.items()}
        return detection_loss(wide, targets)

    def test(
        self,
        model: nn.Module,
        weights: Tensors,
        batches: Iterable[DetectionBatch],
        source: Coco,
    ) -> dict[str, float]:
        return evaluate_detector(
            model,
            batches,
            source.images,
            source.class_names,
            anchor_scale=self.settings.training.anchor_scale,
            weights=weights,
            ranks=self.ranks,
        )


def resize_for(kind: str, size: int) -> Resize:
    """Return what --resize and --image-size mean."""
    return KeepRatio(size, round(size * 1333 / 800)) if kind == "keep-ratio" else Square(size)


def counted_on_all_ranks(targets: Sequence[Tensors], ranks: Ranks) -> list[Tensors]:
    """Add "divisor", a rank's even part of the number of object anchors on all ranks.

    The loss is a sum over the batch divided by that number. With it the mean of the ranks' losses
    is the loss of the whole batch; with each rank's own number, which varies a lot, it is not.
    """
    if ranks.count == 1:
        return list(targets)
    counts = torch.stack([(each["classes"] >= 0).sum() for each in targets]).double()
    divisors = ranks.sum(counts).clamp(min=1) / ranks.count
    return [{**each, "divisor": divisor} for each, divisor in zip(targets, divisors, strict=True)]


def same(one: Examples, other: Examples) -> torch.Tensor:
    """Return whether all pixels, boxes and labels are equal, where the pixels are: no waiting."""
    pairs = zip(one.images, other.images, strict=True)
    pixels = torch.stack([(new == old).all() for new, old in pairs]).all()
    targets = all(
        np.array_equal(one.boxes[i], other.boxes[i])
        and np.array_equal(one.labels[i], other.labels[i])
        for i in range(len(other.images))
    )
    return pixels & targets


def sample_arrays(examples: Examples, class_names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return the arrays of samples.npz; images of different sizes fill the corner of one array.

    images (N, H, W, 3), sizes (N, 2), names (N,); boxes (M, 4) and owners (M,), the image of each.
    """
    pixels = [np.asarray(image) for image in examples.images]
    sizes = np.array([image.shape[:2] for image in pixels])
    images = np.zeros((len(sizes), *sizes.max(0), 3), np.uint8)
    for place, image in zip(images, pixels, strict=True):
        place[: image.shape[0], : image.shape[1]] = image
    return {
        "images": images,
        "sizes": sizes,
        "names": np.array([_caption(labels, class_names) for labels in examples.labels]),
        "boxes": np.concatenate(examples.boxes),
        "owners": np.repeat(np.arange(len(sizes)), [len(boxes) for boxes in examples.boxes]),
    }


def _caption(labels: np.ndarray, class_names: tuple[str, ...]) -> str:
    """Return the three most frequent classes, such as "person, dog"."""
    kinds, counts = np.unique(labels, return_counts=True)
    kinds = kinds[np.argsort(-counts, kind="stable")]
    return ", ".join(class_names[kind] for kind in kinds[:3]) or "nothing"
