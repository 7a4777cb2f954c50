"""What the search and the training must know about the task that a network learns.

Nobody else asks which task it is: Algorithm 1 (`search.algorithm`) and the training loop
(`train.loop`) call these methods. A new task is one file with a `Task`, and its facts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from ddas_gpu.data import splits
from ddas_gpu.data.catalog import find_data
from ddas_gpu.data.opening import find_root
from ddas_gpu.data.overview import Found
from ddas_gpu.distributed.ranks import ALONE, Ranks
from ddas_gpu.models.registry import task_of
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import SearchSpace
from ddas_gpu.tasks.facts import TaskFacts

if TYPE_CHECKING:
    from ddas_gpu.data.sources import Source
    from ddas_gpu.pipelines.feed import Feed

TRAIN, VALIDATE, TEST = "to train on", "to validate on", "to test on"


@dataclass(frozen=True)
class Versions:
    """A batch as it is, version 0, and under L̂ policies, ready for the network."""

    inputs: torch.Tensor  # (L̂ + 1, B, 3, H, W)
    targets: Any  # what `PolicyGradients` takes: for all versions, or a list with one for each
    unchanged: torch.Tensor  # (L̂,) bool: policies that left the batch as it is, to the byte

    @property
    def clean(self) -> Versions:
        """Version 0 alone."""
        targets = self.targets[:1] if isinstance(self.targets, (list, tuple)) else self.targets
        return Versions(self.inputs[:1], targets, self.unchanged[:0])


def unchanged(pixels: torch.Tensor) -> torch.Tensor:
    """Return (L̂,) bool: the versions whose every byte is that of the clean batch, version 0."""
    return (pixels[1:] == pixels[:1]).flatten(1).all(1)


class Task(ABC):
    """Data, network, loss and score of a task, for one run.

    settings: those of the search or of the training; a task reads the groups both share.
    """

    facts: TaskFacts
    measured: tuple[str, ...] = ()
    """What is measured of a training batch beside its loss."""

    def __init__(
        self, settings: Any, device: torch.device | str = "cpu", ranks: Ranks = ALONE
    ) -> None:
        self.settings, self.device, self.ranks = settings, torch.device(device), ranks
        self.data, self.seed = settings.data, settings.run.seed
        self.spec = find_data(settings.data.data)
        self.notes: list[str] = []  # what was changed to fit the data
        self._fitted: set[str] = set()
        self.found: Found | None = None  # set with the sets of images

    def root_of(self, root: Path | None) -> Path | None:
        """Return the folder of the data set; None for data that has none."""
        if not self.spec.reader.layout:
            return root
        return find_root(self.spec.name, root, self.spec.reader.layout)

    # The data.

    def note_found(self, images: int, classes: int, sets: dict[str, Any]) -> None:
        """Keep for the overview how many images and classes there are, and which are taken."""
        root = self.root_of(self.data.root)
        name = self.spec.name if root is None else f"{self.spec.name} in {root}"
        self.found = Found(name, images, classes, sets)

    def note_validation(self, images: Any) -> None:
        """Keep for the overview what --val-root adds."""
        assert self.found is not None
        sets = {**self.found.sets, f"{VALIDATE} of {self.data.val_root}": images}
        self.found = replace(self.found, images=self.found.images + len(images), sets=sets)

    def overview(self) -> list[str]:
        """Return what was found, for people, before the run begins."""
        found = [] if self.found is None else self.found.lines()
        return [*found, *(f"note: {note}" for note in self.notes)]

    def fit(self, **values: Any) -> None:
        """Change settings to what the data allows."""
        self._fitted |= values.keys()
        self.settings = self.settings.replace(**values)
        self.data = self.settings.data

    def has_usual(self, name: str) -> bool:
        """Return whether a setting is the preset's, and may be fitted to the data."""
        usual = self.settings.usual().to_json()
        return name in self._fitted or self.settings.to_json()[name] == usual[name]

    def fit_sizes(
        self, available: int, elsewhere: int | None = None, least: int = 1
    ) -> tuple[int, int]:
        """Return how many images to train and to validate on: what there is, at most.

        Only numbers of the preset become smaller. elsewhere: images of --val-root; least: that
        each set must have.
        """
        names = ("train_images", "val_images")
        wanted = tuple(getattr(self.data, name) for name in names)
        if elsewhere is None:
            fits = sum(wanted) <= available
        else:
            fits = wanted[0] <= available and wanted[1] <= elsewhere
        if fits:
            return wanted[0], wanted[1]
        free = tuple(map(self.has_usual, names))
        if elsewhere is None:
            sizes = splits.fitted(wanted, free, available, least)
        else:
            sizes = splits.fitted(wanted[:1], free[:1], available, least)
            sizes += splits.fitted(wanted[1:], free[1:], elsewhere, least)
        if sizes != wanted:
            changes = dict(zip(names, sizes, strict=True)) | self._fitting_batches(sizes)
            flags = " ".join(f"--{n.replace('_', '-')} {v}" for n, v in changes.items())
            total = " + ".join(map(str, wanted))
            self.notes.append(f"the preset asks for {total} images; going on with {flags}")
            self.fit(**changes)
        return self.data.train_images, self.data.val_images

    def fit_batches(self, *sets: Any) -> None:
        """Make the preset's batches smaller where bad files have left fewer images."""
        changes = self._fitting_batches(tuple(map(len, sets)))
        if changes:
            self.fit(**changes)

    def _fitting_batches(self, sizes: tuple[int, ...]) -> dict[str, int]:
        """Return the batch sizes that have to become smaller for sets of these sizes."""
        changes = {}
        for name, size in zip(("batch_size", "val_batch_size"), sizes, strict=True):
            most = max(1, size // self.settings.run.ranks)
            if getattr(self.settings.training, name) > most and self.has_usual(name):
                changes[name] = most
        return changes

    @abstractmethod
    def search_sets(self) -> tuple[Source, Source]:
        """Return the training and the validation images of a search, disjoint."""

    @abstractmethod
    def training_sets(self) -> tuple[Source, Source]:
        """Return the training and the test images of a training."""

    @abstractmethod
    def validation_set(self, train: Any) -> Source:
        """Return the images of --val-root, with the classes of the training images."""

    @abstractmethod
    def clean_feed(self, source: Any, *, training: bool) -> Feed:
        """Return the feed of uint8 images; `training` crops and flips them at random."""

    @abstractmethod
    def model_feed(
        self,
        source: Any,
        *,
        training: bool,
        schedule: PolicySchedule | None = None,
        like: Feed | None = None,
    ) -> Feed:
        """Return the feed of batches for the network.

        like: the feed of the training images; test images are normalised as they are.
        """

    @abstractmethod
    def samples(self, source: Any) -> dict[str, Any]:
        """Return a few images as the arrays of samples.npz, for the report."""

    # The network.

    @abstractmethod
    def build_model(self, class_names: tuple[str, ...]) -> nn.Module:
        """Return a new network, on the device."""

    @abstractmethod
    def versions(self, batch: Any, policies: np.ndarray, space: SearchSpace) -> Versions:
        """Return a clean batch and its version under each policy (L̂, N_o), for the network.

        Signs and places are drawn from (seed, epoch, sample). What the standard transform draws
        after the policy is drawn once and shared by all versions.
        """

    @abstractmethod
    def validation_inputs(self, batch: Any) -> tuple[torch.Tensor, Any]:
        """Return inputs (B, 3, H, W) and targets of a clean batch without a policy."""

    @abstractmethod
    def training_inputs(self, batch: Any) -> tuple[torch.Tensor, Any]:
        """Return inputs (B, 3, H, W) and targets of a batch of `model_feed`."""

    @abstractmethod
    def loss(self, outputs: Any, targets: Any) -> torch.Tensor:
        """Return the loss of outputs = model(inputs)."""

    def measure(self, outputs: Any, targets: Any) -> list[torch.Tensor]:
        """Return the numbers of `measured`, float64, means over the batch."""
        return []

    @abstractmethod
    def test(
        self,
        model: nn.Module,
        weights: dict[str, torch.Tensor],
        batches: Iterable[Any],
        source: Any,
    ) -> dict[str, float]:
        """Test `model` with `weights`: return test_loss, the score and more for metrics.jsonl.

        batches: every image of `source` once, on one of the ranks. All ranks test together. The
        model's own weights and its mode stay as they are.
        """

    def provenance(self) -> dict[str, Any]:
        """Return what policy.json says of the data and the loss beside the settings."""
        return {}

    def require_own_model(self) -> None:
        """Raise a ValueError if --model names a network of another task."""
        name = self.settings.training.model
        task = task_of(name)
        if task is not None and task != self.facts.name:
            raise ValueError(
                f"--model {name} is for {task}, but --data {self.spec.name} is for "
                f"{self.facts.name}"
            )


# The module of each task, which has a class `Task…` named here.
TASKS = {
    "classification": ("ddas_gpu.tasks.classification", "Classification"),
    "detection": ("ddas_gpu.tasks.detection", "Detection"),
}


def open_task(settings: Any, device: torch.device | str = "cpu", ranks: Ranks = ALONE) -> Task:
    """Return the task that the data set of these settings is for."""
    module, name = TASKS[find_data(settings.data.data).task]
    return getattr(import_module(module), name)(settings, device, ranks)
