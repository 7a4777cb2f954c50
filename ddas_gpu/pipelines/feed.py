"""What the host decides about a batch: a pure function of (seed, epoch, samples).

A `Feed` knows its source, its standard transform and, for training, its policy schedule. Two
executors make pixels of what it decides: the DALI graph (`graph`, run by `dali`) and Pillow with
numpy (`host`). Its output is "model", normalised batches with the policy applied, or "clean",
uint8 images after crop and flip, on which the search tries its policies.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ddas_gpu import streams
from ddas_gpu.data.decoding import resized
from ddas_gpu.data.opening import Images
from ddas_gpu.data.sources import ImageArrays, ImageFiles, Records
from ddas_gpu.ops.inputs import inputs_of
from ddas_gpu.pipelines.order import Order
from ddas_gpu.pipelines.pixels import middle_part, moved, pad_shift_flip, random_parts
from ddas_gpu.pipelines.policy_node import DrawnPolicies, PolicyNode, Problems
from ddas_gpu.pipelines.transform import Transform
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import SearchSpace

if TYPE_CHECKING:
    from ddas_gpu.pipelines.host import HostBatches


class Feed(ABC):
    """Decides everything random about the batch with a given number.

    `first` is the number, counted over all epochs, of the batch that DALI calls number 0.
    """

    source: Any
    transform: Any
    advice: str  # what to do about unreadable files
    # Whether the DALI graph applies the policy and normalises; else `pack` does, in one pass on
    # torch's stream. Set by the pipeline that runs the graph.
    finished = True

    def __init__(
        self,
        *,
        training: bool,
        seed: int = 0,
        schedule: PolicySchedule | None = None,
        total_epochs: int = 1,
        clean: bool = False,
    ) -> None:
        self.training, self.seed, self.first, self.clean = training, seed, 0, clean
        self.schedule, self.total_epochs = schedule, total_epochs
        self.order: Order | None = None  # set by the pipeline that runs the graph
        self._begin()

    def _begin(self) -> None:
        self.problems = Problems()
        self.drawn: deque[Any] = deque()  # for the policy of each batch that is under way

    def from_batch(self, first: int) -> Feed:
        """Return the same feed, beginning with another batch."""
        feed = copy.copy(self)
        feed.first = first
        feed._begin()
        return feed

    def __call__(self, info: Any) -> tuple[Any, ...]:
        """Serve `fn.external_source`; `info` is DALI's BatchInfo."""
        order = self.order
        assert order is not None, "no pipeline runs this feed"
        epoch, place = order.locate(self.first + info.iteration)
        given, drawn = self.make(epoch, order.batch(epoch, place))
        if self.schedule is not None:
            self.drawn.append(drawn)
        return tuple(given[name] for name in self.names)

    def next_drawn(self) -> Any:
        """Return what was drawn for the next batch of the graph, if its policy comes after it."""
        return self.drawn.popleft() if self.schedule is not None else None

    def draw_policies(
        self, schedule: PolicySchedule, epoch: int, samples: np.ndarray
    ) -> DrawnPolicies:
        """Draw the policy of each sample."""
        policies = schedule.draw(epoch, self.total_epochs, self.seed, samples)
        return DrawnPolicies(policies, streams.sign_key(self.seed, epoch), samples)

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """What the host gives the graph for a batch."""

    @property
    @abstractmethod
    def files(self) -> Sequence[Path] | None:
        """The file of every sample, where each has its own."""

    @abstractmethod
    def make(self, epoch: int, samples: np.ndarray) -> tuple[dict[str, Any], Any]:
        """Return everything in `names`, and what the policy node needs."""

    @abstractmethod
    def make_node(self, space: SearchSpace) -> PolicyNode:
        """Return the node of the graph that applies the policies in `drawn`."""

    @abstractmethod
    def define(self, gpu: bool, reader: dict[str, Any]) -> tuple[Any, ...]:
        """Return the outputs of the DALI graph. `reader` has the options of a record reader."""

    @abstractmethod
    def pack(self, outputs: Sequence[Any], epoch: int, samples: np.ndarray) -> Any:
        """Return the outputs of the DALI graph as a batch."""

    @abstractmethod
    def on_host(self, order: Order, device: str, workers: int | None) -> HostBatches:
        """Return the executor without DALI."""


class Batch(NamedTuple):
    """What a classifier trains on."""

    images: torch.Tensor  # normalised, (B, 3, H, W) unless asked otherwise
    labels: torch.Tensor  # int64 (B,)


class CleanBatch(NamedTuple):
    """What the search augments: images after crop and flip."""

    images: torch.Tensor  # uint8 (B, H, W, 3)
    labels: torch.Tensor  # int64 (B,)
    samples: np.ndarray  # (B,) places in the source
    epoch: int
    holes: np.ndarray | None  # (B, 2) corners of Cutout, for after the policy


class LabelFeed(Feed):
    """Images with one label each."""

    advice = "replace such files, or leave them out with on_bad_files='skip'"
    source: Images
    transform: Transform

    def __init__(self, source: Images, transform: Transform, **settings: Any) -> None:
        self.source, self.transform = source, transform
        super().__init__(**settings)

    @property
    def names(self) -> tuple[str, ...]:
        names: tuple[str, ...] = ()
        if isinstance(self.source, ImageFiles):
            names += ("paths",) if self.clean else ("paths", "labels")
        elif isinstance(self.source, ImageArrays):
            names += ("images", "labels")
        if self.training and not isinstance(self.source, ImageArrays):
            names += ("crops" if self.transform.crop == "resized" else "shifts",)
            names += ("flips",) if self.transform.flip else ()
        if self._cuts and not self.clean and self.finished:
            names += ("holes",)
        return names

    @property
    def _cuts(self) -> bool:
        return self.training and self.transform.cutout > 0

    @property
    def files(self) -> Sequence[Path] | None:
        return self.source.files if isinstance(self.source, ImageFiles) else None

    def make(self, epoch: int, samples: np.ndarray) -> tuple[dict[str, Any], DrawnPolicies | None]:
        given: dict[str, Any] = {}
        if isinstance(self.source, ImageFiles):
            given["paths"] = paths_for_dali([self.source.files[i] for i in samples])
        if isinstance(self.source, (ImageFiles, ImageArrays)):
            # Like the labels of DALI's own readers.
            given["labels"] = self.source.labels[samples].astype(np.int32)[:, None]
        if self.training:
            crops, flips = self.crops_and_flips(epoch, samples)
            padding = self.transform.padding
            given["crops"], given["flips"] = crops, flips.astype(np.int32)
            given["shifts"] = (streams.shifts(crops, padding) - padding).astype(np.int32)
        if isinstance(self.source, ImageArrays) and isinstance(self.source.images, np.ndarray):
            given["images"] = self._shifted(self.source.images[samples], epoch, samples)
        holes = None if self.clean else self.holes(epoch, samples)
        if holes is not None:
            given["holes"] = holes.astype(np.float32)
        if self.schedule is None:
            return given, None
        return given, self.draw_policies(self.schedule, epoch, samples)

    def crops_and_flips(self, epoch: int, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return streams.crops_and_flips(self.seed, epoch, samples, self.transform.flip)

    def _shifted(self, pixels: np.ndarray, epoch: int, samples: np.ndarray) -> np.ndarray:
        """Return images (B, H, W, 3), for training shifted and mirrored."""
        if not self.training:
            return pixels
        return pad_shift_flip(pixels, *self.crops_and_flips(epoch, samples), self.transform.padding)

    def cropped(self, images: list[np.ndarray], epoch: int, samples: np.ndarray) -> np.ndarray:
        """Return decoded images of any sizes after crop and flip, (B, H, W, 3)."""
        transform = self.transform
        if transform.crop == "pad":
            whole = np.stack([resized(image, transform.size) for image in images])
            if not self.training:
                return whole
            crops, flips = self.crops_and_flips(epoch, samples)
            return pad_shift_flip(whole, crops, flips, transform.padding)
        if not self.training:
            return np.stack([middle_part(image, transform.size) for image in images])
        return random_parts(images, *self.crops_and_flips(epoch, samples), transform.size)

    def holes(self, epoch: int, samples: np.ndarray) -> np.ndarray | None:
        """Draw the corner of each Cutout, (B, 2); None without Cutout."""
        if not self._cuts:
            return None
        size, side = self.transform.size, self.transform.cutout
        return streams.hole_corners(self.seed, epoch, samples, size, side)

    def make_node(self, space: SearchSpace) -> PolicyNode:
        return PolicyNode(space, self.problems, self.drawn)

    def define(self, gpu: bool, reader: dict[str, Any]) -> tuple[Any, ...]:
        from ddas_gpu.pipelines.graph import define_labels

        return define_labels(self, gpu, reader)

    def pack(self, outputs: Sequence[Any], epoch: int, samples: np.ndarray) -> Batch | CleanBatch:
        images = as_tensor(outputs[0])
        if self.clean:
            return self.clean_batch(images, epoch, samples)
        labels = as_tensor(outputs[1])[:, 0].long()
        if self.finished:
            return Batch(images, labels)
        return self.model_batch(images, labels, self.next_drawn(), self.holes(epoch, samples))

    def model_batch(
        self,
        images: torch.Tensor,
        labels: torch.Tensor,
        drawn: DrawnPolicies | None,
        holes: np.ndarray | None,
    ) -> Batch:
        """Return uint8 images (B, H, W, 3) after the policy, normalised, with holes: one pass."""
        request = None
        if drawn is not None and self.schedule is not None:
            policies, key, samples = drawn
            request = self.schedule.space.request(policies, len(images), key, samples)
        wanted, side = self.transform.output, self.transform.cutout
        inputs = inputs_of(images, wanted, request, holes=holes, side=side)
        return Batch(inputs, labels)

    def clean_batch(self, images: torch.Tensor, epoch: int, samples: np.ndarray) -> CleanBatch:
        if self.transform.rotate90:
            images = images.rot90(1, (1, 2)).contiguous()
        assert not isinstance(self.source, Records), "a search needs images of a known number"
        labels = moved(self.source.labels[samples], images.device).long()
        return CleanBatch(images, labels, samples, epoch, self.holes(epoch, samples))

    def on_host(self, order: Order, device: str, workers: int | None) -> HostBatches:
        from ddas_gpu.pipelines.host import LabelsOnHost

        return LabelsOnHost(self, order, device, workers)


def as_tensor(output: Any) -> torch.Tensor:
    """Return an output of a DALI pipeline, a batch of one shape, without a copy."""
    return torch.from_dlpack(output.as_tensor())


def paths_for_dali(files: Sequence[Path]) -> list[np.ndarray]:
    return [np.frombuffer(os.fsencode(file), np.uint8) for file in files]
