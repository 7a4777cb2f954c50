"""Images with one label each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ddas_gpu import ops, streams
from ddas_gpu.data import splits
from ddas_gpu.data.decoding import read_images, to_size
from ddas_gpu.data.opening import checked
from ddas_gpu.data.overview import look_at
from ddas_gpu.data.sources import (
    ImageArrays,
    ImageFiles,
    Labelled,
    Pixels,
    require_same_classes,
)
from ddas_gpu.data.svhn import with_extra
from ddas_gpu.models import build
from ddas_gpu.models.registry import is_own, require_logits
from ddas_gpu.pipelines.feed import Batch, CleanBatch, Feed, LabelFeed
from ddas_gpu.pipelines.order import Order, spread
from ddas_gpu.pipelines.pixels import channel_statistics, cut_holes, normalise
from ddas_gpu.pipelines.transform import make_transform
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import SearchSpace
from ddas_gpu.streams import Stream
from ddas_gpu.tasks.evaluation import evaluate
from ddas_gpu.tasks.facts import FACTS
from ddas_gpu.tasks.task import TEST, TRAIN, VALIDATE, Task, Versions, unchanged

SMALL = 1.5  # times --image-size: up to this, images are padded and not cropped with --crop auto
STATISTICS = 256  # files that the mean and the deviation of a search are taken from
SAMPLES = 8


class Classification(Task):
    """Every version of a batch has the batch's labels."""

    facts = FACTS["classification"]
    measured = ("accuracy",)

    _statistics: tuple[np.ndarray, np.ndarray]  # mean and deviation, of a search

    def search_sets(self) -> tuple[Labelled, Labelled]:
        source = self._open(self.data.root)
        other = None if self.data.val_root is None else self._open(self.data.val_root)
        if other is not None:
            require_same_classes(source, other, f"--val-root {self.data.val_root}")
        require_classes(source, self.data.root)
        self._fit_crop(source)
        whole = len(source) + (0 if other is None else len(other))
        classes = len(source.class_names)
        train, val = self._split(source, other)
        train, val = checked((train, val), self.data.bad_files)
        self.fit_batches(train, val)
        # Of the files: decoded images may have become smaller.
        validate = VALIDATE if other is None else f"{VALIDATE} of {self.data.val_root}"
        self.note_found(whole, classes, {TRAIN: train, validate: val})
        train, val = self._decoded(train), self._decoded(val)
        self.use_statistics(train)
        return train, val

    def _split(self, source: Labelled, other: Labelled | None) -> tuple[Labelled, Labelled]:
        """Draw the training and the validation images, the latter from `other` if it is given."""
        generator = streams.generator(self.seed, Stream.SPLIT)
        even, there_are = self.data.classes is not None, "there are"
        if even:
            count, wanted = len(source.class_names), self.data.classes
            if wanted > count and self.has_usual("classes"):
                self.notes.append(f"the preset asks for {wanted} classes; going on with {count}")
                self.fit(classes=count)
            kept = splits.some_classes(source.class_names, self.data.classes, generator)
            source = splits.of_classes(source, kept)
            require_classes(source, self.data.root)
            other = None if other is None else splits.of_classes(other, kept)
            there_are = f"the {self.data.classes} classes drawn of {count} have"
        elsewhere = None if other is None else usable(other, even)
        sizes = self.fit_sizes(usable(source, even), elsewhere, len(source.class_names))
        if other is None:
            train, val = splits.stratified_sets(source, sizes, generator, even, there_are)
        else:
            (train,) = splits.stratified_sets(source, sizes[:1], generator, even, there_are)
            (val,) = splits.stratified_sets(other, sizes[1:], generator, even, there_are)
        return train, val

    def overview(self) -> list[str]:
        return [*super().overview(), f"the network sees: {self._seen()}"]

    def _seen(self) -> str:
        """Describe the standard transform of a training image."""
        data = self.data
        parts = [f"{data.image_size} × {data.image_size} pixels"]
        if data.crop == "resized":
            parts.append("a random part of the image, scaled")
        elif data.padding:
            parts.append(f"shifted by up to {data.padding} pixels")
        parts += ["mirrored at random"] * data.flip
        parts += [f"with a hole of {data.cutout} pixels"] * bool(data.cutout)
        return ", ".join(parts)

    def _fit_crop(self, source: Labelled) -> None:
        """Decide what --crop auto means: only of large images a random part is enough to see."""
        if self.data.crop != "auto":
            return
        from_files = getattr(self.data, "decode", "once") == "each"
        largest = int(look_at(source).sizes.min(1).max())
        small = largest <= SMALL * self.data.image_size and not from_files
        self.fit(crop="pad" if small else "resized")
        if small:
            self.notes.append(
                f"the images have at most {largest} pixels on their shorter side, too few for a "
                "crop of random parts: --crop pad (--crop resized does it anyway)"
            )

    def use_statistics(self, train: Labelled) -> None:
        """Normalise with the mean and the deviation of these images; of files, of a sample."""
        if isinstance(train, ImageFiles):
            chosen = [train.files[i] for i in spread(len(train), STATISTICS)]
            self._statistics = channel_statistics(read_images(chosen, self.data.image_size))
        else:
            self._statistics = channel_statistics(train.images)

    def _open(self, root: Path | None) -> Labelled:
        return self.spec.reader.search_images(self.root_of(root), self.data.image_size)

    def _decoded(self, source: Labelled) -> Labelled:
        """Decode files now, into memory, unless they are to be decoded for each batch."""
        size = self.data.image_size
        if self.data.decode == "each":
            if not isinstance(source, ImageFiles):
                raise ValueError(f"--decode each needs image files; {self.data.data} has none here")
            return source
        if self.data.crop == "pad":
            return in_memory(source, to_size(pixels_of(source), size))
        # Twice the size leaves a random crop enough to choose from.
        return in_memory(source, list(pixels_of(source, shortest=2 * size)))

    def training_sets(self) -> tuple[Labelled, Labelled]:
        data, generator = self.data, streams.generator(self.seed, Stream.SPLIT)
        root = self.root_of(data.root)
        test_root = None if data.test_root is None else self.root_of(data.test_root)
        train, test = self.spec.reader.training_images(root, test_root, data.image_size)
        if data.svhn_extra:
            assert root is not None  # SVHN has a folder
            train = with_extra(train, root)
        require_same_classes(train, test, "the test images")
        require_classes(train, root)
        self._fit_crop(train)
        whole, classes = len(train) + len(test), len(train.class_names)
        train = splits.stratified_share(train, data.train_share, generator)
        test = splits.stratified_share(test, data.test_share, generator)
        train, test = checked((train, test), data.bad_files)
        self.note_found(whole, classes, {TRAIN: train, TEST: test})
        return self._small_in_memory(train), self._small_in_memory(test)

    def _small_in_memory(self, source: Labelled) -> Labelled:
        """Return images that a data set has in files of many as an array; files stay files."""
        if self.spec.from_files:
            return source
        return in_memory(source, to_size(pixels_of(source), self.data.image_size))

    def validation_set(self, train: Labelled) -> Labelled:
        source = self._open(self.data.val_root)
        require_same_classes(train, source, f"--val-root {self.data.val_root}")
        (source,) = checked([source], self.data.bad_files)
        self.note_validation(source)
        return self._small_in_memory(source)

    def clean_feed(self, source: Labelled, *, training: bool) -> LabelFeed:
        mean, std = self._statistics
        rotate90 = self.data.sanity_check == "rotate90" and not training
        options = {"mean": mean, "std": std, "rotate90": rotate90}
        return self._feed(source, training, options, clean=True)

    def model_feed(
        self,
        source: Labelled,
        *,
        training: bool,
        schedule: PolicySchedule | None = None,
        like: Feed | None = None,
    ) -> LabelFeed:
        options: dict[str, Any] = {}
        if like is not None:
            options = {"mean": like.transform.output.mean, "std": like.transform.output.std}
        epochs = self.settings.training.epochs
        return self._feed(source, training, options, schedule=schedule, total_epochs=epochs)

    def _feed(
        self, source: Labelled, training: bool, options: dict[str, Any], **feed: Any
    ) -> LabelFeed:
        data = self.data
        transform = make_transform(
            source,
            size=data.image_size,
            crop=data.crop,
            padding=data.padding,
            flip=data.flip,
            cutout=data.cutout,
            **options,
        )
        return LabelFeed(source, transform, training=training, seed=self.seed, **feed)

    def samples(self, source: Labelled) -> dict[str, Any]:
        """Return up to eight images, evenly spread, without a policy."""
        chosen = source.subset(spread(len(source), SAMPLES))
        transform = make_transform(chosen, size=self.data.image_size, crop=self.data.crop)
        feed = LabelFeed(chosen, transform, training=False, clean=True)
        batches = feed.on_host(Order(len(chosen), len(chosen), shuffle=False), "cpu", None)
        batches.seek(0)
        names = [source.class_names[label] for label in chosen.labels]
        return {
            "images": batches.next().images.numpy(),
            "labels": chosen.labels,
            "names": np.array(names),
        }

    def build_model(self, class_names: tuple[str, ...]) -> nn.Module:
        self.require_own_model()
        name = self.settings.training.model
        model = build(name, len(class_names)).to(self.device)
        if is_own(name):
            size = self.data.image_size
            images = torch.zeros(2, 3, size, size, device=self.device)
            require_logits(name, model, images, len(class_names))
        return model

    def versions(self, batch: CleanBatch, policies: np.ndarray, space: SearchSpace) -> Versions:
        key = streams.sign_key(self.seed, batch.epoch)
        pixels = ops.versions(batch.images, policies, space, seed=key, samples=batch.samples)
        inputs = normalise(pixels, *self._statistics)
        if batch.holes is not None:
            cut_holes(inputs, batch.holes, self.data.cutout)
        return Versions(inputs, batch.labels, unchanged(pixels))

    def validation_inputs(self, batch: CleanBatch) -> tuple[torch.Tensor, torch.Tensor]:
        return normalise(batch.images, *self._statistics), batch.labels

    def training_inputs(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        return batch.images, batch.labels

    def loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        smoothing = getattr(self.settings.training, "label_smoothing", 0.0)
        return F.cross_entropy(outputs, labels, label_smoothing=smoothing)

    def measure(self, outputs: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
        return [(outputs.argmax(1) == labels).double().mean()]

    def test(
        self,
        model: nn.Module,
        weights: dict[str, torch.Tensor],
        batches: Iterable[Batch],
        source: Labelled,
    ) -> dict[str, float]:
        return evaluate(model, batches, weights, self.ranks)


def require_classes(source: Labelled, root: Path | None) -> None:
    """Raise a ValueError where there is nothing to tell apart."""
    if len(source.class_names) < 2:
        where = "" if root is None else f" in {root}"
        raise ValueError(
            f"there is one class only{where}, {source.class_names[0]}: a network that tells "
            "classes apart needs at least 2"
        )


def usable(source: Labelled, even: bool) -> int:
    """Return how many images can be drawn; `even`: of every class as many as of the rarest."""
    if not even:
        return len(source)
    counts = np.bincount(source.labels, minlength=len(source.class_names))
    return int(counts.min()) * len(counts)


def pixels_of(source: Labelled, shortest: int | None = None) -> Pixels:
    """Return the images of a source, files decoded as by `read_images`."""
    return source.images if isinstance(source, ImageArrays) else read_images(source.files, shortest)


def in_memory(source: Labelled, images: Any) -> ImageArrays:
    """Return a source with its images decoded."""
    return ImageArrays(images, source.labels, source.class_names, source.members())
