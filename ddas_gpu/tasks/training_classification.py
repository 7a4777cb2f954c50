"""Training's task for images with one label each."""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from ddas_gpu.data import DataSet
from ddas_gpu.data.clean import AsTheyAre, CentreCrop
from ddas_gpu.data.folder import read_image
from ddas_gpu.data.full_sets import FileSource, Labelled, full_sets
from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.models import build
from ddas_gpu.models.retinanet import RetinaNet
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import check_space
from ddas_gpu.tasks.evaluation import evaluate
from ddas_gpu.tasks.facts import ACCURACY
from ddas_gpu.train.batches import Batch, open_batches, readable
from ddas_gpu.train.settings import TrainSettings

SAMPLES = 8


class ClassificationTraining:
    """A `TrainingTask`."""

    score = ACCURACY
    measured = ("accuracy",)

    def __init__(
        self,
        settings: TrainSettings,
        schedule: PolicySchedule | None,
        device: torch.device,
        ranks: Ranks,
    ) -> None:
        if schedule is not None:
            check_space(schedule.space, False, f"--policy {settings.policy.policy}")
        self.settings, self.device, self.ranks = settings, device, ranks
        in_memory = not settings.spec.from_files
        sets = full_sets(settings.data, settings.run.seed, in_memory)
        self.sets = readable(sets, settings.data.bad_files)
        self.class_names = self.sets.class_names
        self.batches, self.test_batches = open_batches(settings, self.sets, schedule, device, ranks)
        self.steps_per_epoch = self.batches.steps_per_epoch

    def build_model(self) -> nn.Module:
        name = self.settings.training.model
        model = build(name, len(self.class_names))
        if isinstance(model, RetinaNet):
            raise ValueError(f"--model {name} is a detector: it needs --data coco")
        return model.to(self.device)

    def batch(self, step: int) -> Batch:
        return self.batches.batch(step)

    def loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        smoothing = self.settings.training.label_smoothing
        return F.cross_entropy(outputs, labels, label_smoothing=smoothing)

    def measure(self, outputs: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
        return [(outputs.argmax(1) == labels).double().mean()]

    def test(self, model: nn.Module, weights: dict[str, torch.Tensor]) -> dict[str, float]:
        return evaluate(model, self.test_batches, weights, self.ranks)

    def fingerprints(self) -> list[int]:
        return [fingerprint(self.sets.train), fingerprint(self.sets.test)]

    def samples(self) -> DataSet:
        """A few training images, evenly spread."""
        train = self.sets.train
        count = min(SAMPLES, len(train.labels))
        chosen = np.linspace(0, len(train.labels) - 1, count).astype(int)
        labels = train.labels[chosen]
        if isinstance(train, FileSource):
            images = [read_image(train.files[index]) for index in chosen]
            crop = CentreCrop(self.settings.data.image_size)
            return DataSet(images, labels, self.class_names, crop)
        return DataSet(train.images[chosen], labels, self.class_names, AsTheyAre())


def fingerprint(images: Labelled) -> int:
    """A number that tells these images from others; of files only the names are looked at."""
    checksum = zlib.crc32(np.ascontiguousarray(images.labels))
    if isinstance(images, FileSource):
        names = "\0".join(f"{file.parent.name}/{file.name}" for file in images.files)
        return zlib.crc32(names.encode(errors="surrogateescape"), checksum)
    return zlib.crc32(np.ascontiguousarray(images.images), checksum)
