"""What the host gives a DALI graph for each batch: file names or pixels, labels, random choices."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ddas_gpu.pipelines import draws
from ddas_gpu.pipelines.epochs import Epochs
from ddas_gpu.pipelines.images import ImageArrays, ImageFiles, Images
from ddas_gpu.pipelines.policy_node import Order, PolicyNode
from ddas_gpu.pipelines.recipe import Recipe
from ddas_gpu.policy import PolicySchedule


class Feed:
    """The batch with a given number, whoever asks when: a pure function of that number.

    `first` is the number, counted over all epochs, of the batch that DALI calls number 0.
    """

    def __init__(
        self,
        images: Images,
        recipe: Recipe,
        *,
        training: bool,
        seed: int = 0,
        first: int = 0,
        schedule: PolicySchedule | None = None,
        total_epochs: int = 1,
    ) -> None:
        self.images, self.recipe, self.training = images, recipe, training
        self.seed, self.first = seed, first
        self.schedule, self.total_epochs = schedule, total_epochs
        # What went wrong inside the graph. Functions in there must not raise: DALI would keep no
        # more than the text, and has been seen to abort the process. The pipeline raises it.
        self.problems: list[Exception] = []
        self.node = None if schedule is None else PolicyNode(schedule.space, self.problems)
        self.epochs: Epochs | None = None  # unknown for records until DALI has opened them

    def from_batch(self, first: int) -> Feed:
        """The same feed, beginning elsewhere."""
        return Feed(
            self.images,
            self.recipe,
            training=self.training,
            seed=self.seed,
            first=first,
            schedule=self.schedule,
            total_epochs=self.total_epochs,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """What a batch consists of."""
        names: tuple[str, ...] = ()
        if isinstance(self.images, ImageFiles):
            names += ("paths", "labels")
        elif isinstance(self.images, ImageArrays):
            names += ("images", "labels")
        if self.training and not isinstance(self.images, ImageArrays):
            names += ("crops" if self.recipe.crop == "resized" else "shifts",)
            names += ("flips",) if self.recipe.flip else ()
        if self.training and self.recipe.cutout:
            names += ("holes",)
        return names

    def __call__(self, info: Any) -> tuple[Any, ...]:
        """For `fn.external_source`; `info` is DALI's BatchInfo."""
        iteration = self.first + info.iteration
        epoch, place = self.epochs.locate(iteration)
        samples = self.epochs.batch(epoch, place)
        batch = self.batch(epoch, samples)
        if self.node is not None:
            self.node.orders.append(self.order(epoch, samples))
        return tuple(batch[name] for name in self.names)

    def batch(self, epoch: int, samples: np.ndarray) -> dict[str, Any]:
        """Everything in `names`."""
        batch: dict[str, Any] = {}
        if isinstance(self.images, ImageFiles):
            files = self.images.files
            batch["paths"] = [np.frombuffer(os.fsencode(files[i]), np.uint8) for i in samples]
        if isinstance(self.images, (ImageFiles, ImageArrays)):
            # Like the labels of DALI's own readers.
            batch["labels"] = self.images.labels[samples].astype(np.int32)[:, None]
        crops = flips = None
        if self.training:
            crops, flips = draws.crops_and_flips(self.seed, epoch, samples, self.recipe.flip)
            batch["crops"], batch["flips"] = crops, flips.astype(np.int32)
            padding = self.recipe.padding
            batch["shifts"] = (draws.shifts(crops, padding) - padding).astype(np.int32)
        if isinstance(self.images, ImageArrays):
            batch["images"] = self._pixels(samples, crops, flips)
        if "holes" in self.names:
            size, side = self.recipe.size, self.recipe.cutout
            corners = draws.hole_corners(self.seed, epoch, samples, size, side)
            batch["holes"] = corners.astype(np.float32)
        return batch

    def order(self, epoch: int, samples: np.ndarray) -> Order:
        """The policies of a batch."""
        policies = draws.draw_policies(self.schedule, self.total_epochs, self.seed, epoch, samples)
        return Order(policies, draws.sign_key(self.seed, epoch), samples)

    def _pixels(
        self, samples: np.ndarray, crops: np.ndarray | None, flips: np.ndarray | None
    ) -> np.ndarray:
        pixels = self.images.images[samples]
        if crops is None:
            return pixels
        return pad_crop_flip(pixels, crops, flips, self.recipe.padding)


def pad_crop_flip(
    images: np.ndarray, crops: np.ndarray, flips: np.ndarray, padding: int
) -> np.ndarray:
    """(B, H, W, 3) shifted into black and mirrored: small images, so numpy is fast enough."""
    count, height, width, channels = images.shape
    rows, columns = height + 2 * padding, width + 2 * padding
    padded = np.zeros((count, rows, columns, channels), np.uint8)
    padded[:, padding : padding + height, padding : padding + width] = images
    image, row, pixel, channel = padded.strides
    places = 2 * padding + 1
    windows = np.lib.stride_tricks.as_strided(
        padded,
        (count, places, places, height, width, channels),
        (image, row, pixel, row, pixel, channel),
        writeable=False,
    )
    down, across = draws.shifts(crops, padding).T
    shifted = windows[np.arange(count), down, across]
    shifted[flips] = shifted[flips, :, ::-1]
    return shifted
