"""A user's own network, data and loss, as `ddas_gpu.search_policy` takes them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from ddas_gpu import ops, streams
from ddas_gpu.data.datasets import ExampleArrays, Examples, one_size
from ddas_gpu.distributed.ranks import ALONE, Ranks
from ddas_gpu.ops.table import find_any
from ddas_gpu.pipelines.example_feed import ExampleFeed
from ddas_gpu.pipelines.feed import CleanBatch
from ddas_gpu.pipelines.order import Order, spread
from ddas_gpu.pipelines.pixels import channel_statistics, cut_holes, normalise
from ddas_gpu.pipelines.transform import make_output, make_transform
from ddas_gpu.space import SearchSpace, check_space
from ddas_gpu.streams import Stream
from ddas_gpu.tasks.facts import CUSTOM
from ddas_gpu.tasks.own_network import (
    bare,
    class_name,
    name_of,
    require_single_precision,
    require_weights,
)
from ddas_gpu.tasks.task import Task, Versions, unchanged

STATISTICS = 256  # examples that the mean and the deviation are taken from where not all are read
SAMPLES = 8


@dataclass(frozen=True)
class Trial:
    """The policies φ_1 … φ_L̂ of a step. Every call draws the same signs and places."""

    policies: np.ndarray  # (L̂, N_o)
    space: SearchSpace
    seed: int
    samples: np.ndarray  # (B,)

    def images(self, images: torch.Tensor) -> torch.Tensor:
        """Return uint8 (B, H, W, 3) as it is and under each policy: (L̂ + 1, B, H, W, 3)."""
        return self._run(images, self.policies, self.space)

    def maps(self, maps: torch.Tensor, outside: int = 0) -> torch.Tensor:
        """Move uint8 maps (B, H, W), such as masks, as the pixels move: (L̂ + 1, B, H, W).

        Candidates that do not move pixels leave maps as they are. Places from outside the image
        get the value `outside`.
        """
        if maps.dtype != torch.uint8 or maps.ndim != 3:
            raise ValueError(
                f"maps must be uint8 (B, H, W), not {maps.dtype} {tuple(maps.shape)}: "
                "maps.to(torch.uint8) for classes from 0 to 255"
            )
        moves = np.array([find_any(c.op).matrix is not None for c in self.space])
        policies = np.where(moves[self.policies], self.policies, -1)
        space = dataclasses.replace(self.space, fill=outside)
        channels = maps[..., None].expand(*maps.shape, 3).contiguous()
        return self._run(channels, policies, space)[..., 0]

    def boxes(
        self, images: torch.Tensor, boxes: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return images, boxes and labels as they are and under each policy.

        boxes: (B, N, 4), x0 y0 x1 y1 in pixels; labels: (B, N), negative where there is no box.
        Results have L̂ + 1 in front. A box that leaves its image gets the label -1. The space needs
        ops that move boxes, as the presets "coco" and "scenes" have.
        """
        check_space(self.space, has_boxes=True, where="space")
        there = (labels >= 0).cpu()
        old_boxes, old_labels = (
            [part[own].numpy() for part, own in zip(given.cpu(), there, strict=True)]
            for given in (boxes, labels)
        )
        all_images, all_boxes, all_labels = [images], [boxes], [labels]
        for policies in self.by_version:
            pixels, new_boxes, new_labels = ops.augment_boxes(
                list(images),
                old_boxes,
                old_labels,
                policies,
                self.space,
                self.seed,
                samples=self.samples,
            )
            all_images.append(torch.stack(pixels))
            all_boxes.append(_padded(new_boxes, boxes, 0))
            all_labels.append(_padded(new_labels, labels, -1))
        return torch.stack(all_images), torch.stack(all_boxes), torch.stack(all_labels)

    @property
    def by_version(self) -> list[np.ndarray]:
        """The policy of each version but the clean one: (N_o,), or (B, N_o) for each image."""
        return list(self.policies)

    def _run(self, images: torch.Tensor, policies: np.ndarray, space: SearchSpace) -> torch.Tensor:
        return ops.versions(images, policies, space, self.seed, samples=self.samples)


def _padded(rows: list[np.ndarray], like: torch.Tensor, empty: int) -> torch.Tensor:
    """Return the rows of each image in a tensor like another, `empty` behind them."""
    result = torch.full(like.shape, empty, dtype=like.dtype)
    for place, own in enumerate(rows):
        result[place, : len(own)] = torch.from_numpy(own)
    return result.to(like.device)


class PerImage(Trial):
    """A policy for each image, (B, N_o), -1 for nothing: one version beside the clean batch."""

    @property
    def by_version(self) -> list[np.ndarray]:
        return [self.policies]

    def _run(self, images: torch.Tensor, policies: np.ndarray, space: SearchSpace) -> torch.Tensor:
        changed = ops.augment(images, policies, space, self.seed, samples=self.samples)
        return torch.stack([images, changed])


class SearchTask:
    """What a search asks about targets; subclass it where a label per image is not enough.

    Batches hold uint8 images (B, H, W, 3), and targets as torch's `default_collate` makes them, on
    the device.
    """

    spatial = False
    """Whether targets have places in the image: then only the policy may move pixels, not the
    standard transform, which does not know the targets."""

    def loss(self, outputs: Any, targets: Any) -> torch.Tensor:
        """Return the loss of outputs = model(inputs), a scalar."""
        raise NotImplementedError(f"{type(self).__name__} needs a method loss(outputs, targets)")

    def versions(
        self, images: torch.Tensor, targets: Any, trial: Trial
    ) -> tuple[torch.Tensor, list[Any]]:
        """Return the batch as it is and under each policy, and the targets of each version."""
        pixels = trial.images(images)
        return pixels, [targets] * len(pixels)


def checked_versions(
    task: SearchTask, images: torch.Tensor, targets: Any, trial: Trial
) -> tuple[torch.Tensor, list[Any]]:
    """Return `task.versions`; raise a ValueError if it is not one of each."""
    made = task.versions(images, targets, trial)
    name, count = f"{type(task).__name__}.versions", 1 + len(trial.by_version)
    if not isinstance(made, tuple) or len(made) != 2:
        raise ValueError(f"{name} returns (images, targets of each version)")
    pixels, each = made
    if pixels.dtype != torch.uint8 or pixels.shape != (count, *images.shape):
        raise ValueError(
            f"{name} returns images uint8 {(count, *images.shape)}, version 0 as they were, "
            f"not {pixels.dtype} {tuple(pixels.shape)}"
        )
    if not isinstance(each, (list, tuple)) or len(each) != count:
        found = f"{len(each)} of them" if isinstance(each, (list, tuple)) else type(each).__name__
        raise ValueError(f"{name} returns a list of the targets of {count} versions, not {found}")
    return pixels, list(each)


class LossOnly(SearchTask):
    """Targets that no op changes."""

    def __init__(self, loss: Callable[[Any, Any], torch.Tensor]) -> None:
        self._loss = loss

    def loss(self, outputs: Any, targets: Any) -> torch.Tensor:
        return self._loss(outputs, targets)


@dataclass(frozen=True)
class Own:
    """What a user brings along."""

    model: nn.Module | Callable[[], nn.Module]
    train: Examples
    validation: Examples
    task: SearchTask
    mean: Any = None  # of the inputs; None for the statistics of the training images
    std: Any = None


class Custom(Task):
    """The search on what a user has brought along."""

    facts = CUSTOM

    def __init__(
        self,
        own: Own,
        settings: Any,
        device: torch.device | str = "cpu",
        ranks: Ranks = ALONE,
    ) -> None:
        super().__init__(settings, device, ranks)
        self.own = own

    def search_sets(self) -> tuple[Any, Any]:
        data, generator = self.data, streams.generator(self.seed, Stream.SPLIT)
        sets = []
        for source, count in (
            (self.own.train, data.train_images),
            (self.own.validation, data.val_images),
        ):
            if count < len(source):
                source = source.subset(np.sort(generator.permutation(len(source))[:count]))
            sets.append(source if data.decode == "each" else self._in_memory(source))
        mean, std = self._normalisation(sets[0])
        output = make_output(mean, std, "NCHW", "float32")
        self._statistics = output.mean, output.std
        return sets[0], sets[1]

    @cached_property
    def size(self) -> tuple[int, int]:
        """Height and width of the inputs: the images' own where --image-size is their shorter."""
        side = self.data.image_size
        own = one_size(self.own.train) if self.data.crop == "pad" else None
        return own if own is not None and min(own) == side else (side, side)

    def _in_memory(self, source: Examples) -> ExampleArrays:
        workers = self.data.workers
        workers = torch.get_num_threads() if workers is None else workers
        if self.data.crop == "pad":
            return source.in_memory(workers, size=self.size)
        # Twice the size leaves a random crop enough to choose from.
        read = source.in_memory(workers, shortest=2 * self.data.image_size)
        return dataclasses.replace(read, images=list(read.images))

    def _normalisation(self, train: Any) -> tuple[Any, Any]:
        if self.own.mean is not None and self.own.std is not None:
            return self.own.mean, self.own.std
        if isinstance(train, ExampleArrays):
            images = train.images
        else:
            images = [image for image, _ in train.look(spread(len(train), STATISTICS))]
        mean, std = channel_statistics(images)
        given = self.own
        return mean if given.mean is None else given.mean, std if given.std is None else given.std

    def clean_feed(self, source: Any, *, training: bool) -> ExampleFeed:
        data, (mean, std) = self.data, self._statistics
        transform = make_transform(
            source,
            size=self.size,
            crop=data.crop,
            padding=data.padding,
            flip=data.flip,
            cutout=data.cutout,
            mean=mean,
            std=std,
            rotate90=data.sanity_check == "rotate90" and not training,
        )
        return ExampleFeed(source, transform, training=training, seed=self.seed, clean=True)

    def samples(self, source: Any) -> dict[str, Any]:
        """Return up to eight images, evenly spread, without a policy."""
        chosen = source.subset(spread(len(source), SAMPLES))
        if isinstance(chosen, Examples):
            chosen = self._in_memory(chosen)
        transform = make_transform(chosen, size=self.size, crop=self.data.crop)
        feed = ExampleFeed(chosen, transform, training=False, clean=True)
        batches = feed.on_host(Order(len(chosen), len(chosen), shuffle=False), "cpu", None)
        batches.seek(0)
        names = [caption(target, chosen.class_names) for target in chosen.targets]
        return {"images": batches.next().images.numpy(), "names": np.array(names)}

    def build_model(self, class_names: tuple[str, ...]) -> nn.Module:
        model = self.own.model
        made = copy.deepcopy(model) if isinstance(model, nn.Module) else model()
        if not isinstance(made, nn.Module):
            raise TypeError(
                "model is an nn.Module or a function that builds one, "
                f"but the function returned {type(made).__name__}"
            )
        made = bare(made)
        require_weights(made)
        require_single_precision(made)
        self._model = class_name(made)
        return made.to(self.device)

    def versions(self, batch: CleanBatch, policies: np.ndarray, space: SearchSpace) -> Versions:
        key = streams.sign_key(self.seed, batch.epoch)
        trial = Trial(policies, space, key, batch.samples)
        pixels, targets = checked_versions(self.own.task, batch.images, batch.labels, trial)
        inputs = normalise(pixels, *self._statistics)
        if batch.holes is not None:
            cut_holes(inputs, batch.holes, self.data.cutout)
        return Versions(inputs, targets, unchanged(pixels))

    def validation_inputs(self, batch: CleanBatch) -> tuple[torch.Tensor, Any]:
        return normalise(batch.images, *self._statistics), batch.labels

    def loss(self, outputs: Any, targets: Any) -> torch.Tensor:
        loss = self.own.task.loss(outputs, targets)
        learned = any(torch.is_tensor(part) and part.requires_grad for part in tree_leaves(outputs))
        if learned and torch.is_tensor(loss) and not loss.requires_grad:
            raise ValueError(
                f"the loss of {loss_name(self.own.task)} has no gradient: compute it with torch "
                "from the outputs, without detach()"
            )
        return loss

    def provenance(self) -> dict[str, Any]:
        sources = {"train": self.own.train, "validation": self.own.validation}
        mean, std = self._statistics
        return {
            "data_names": {name: source.name for name, source in sources.items()},
            "loss": loss_name(self.own.task),
            "mean": list(mean),
            "std": list(std),
            "model": self._model,
        }

    def _only_searches(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("your own network and data are trained by your own loop")

    training_sets = validation_set = model_feed = training_inputs = test = _only_searches


def loss_name(task: SearchTask) -> str:
    """Return the name of the user's loss, or of the task that has it."""
    if not isinstance(task, LossOnly):
        return type(task).__qualname__
    return name_of(task._loss)


def caption(target: Any, class_names: tuple[str, ...]) -> str:
    """Return what the report writes under an image: the target, if it is a number."""
    value = np.asarray(target) if not isinstance(target, (dict, list, tuple)) else np.empty(0)
    if value.size != 1 or value.dtype.kind not in "biuf":
        return ""
    known = value.dtype.kind != "f" and 0 <= value < len(class_names)
    return class_names[int(value)] if known else f"{value.item():g}"
