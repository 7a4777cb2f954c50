"""Training's task for images with boxes."""

from __future__ import annotations

import torch
from torch import nn

from ddas_gpu.detection.full_sets import coco_full_sets
from ddas_gpu.detection.losses import detection_loss
from ddas_gpu.detection.matching import targets_for
from ddas_gpu.detection.precision import require_pycocotools
from ddas_gpu.detection.proxies import resize_for
from ddas_gpu.detection.sets import DetectionSet
from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.models.anchors import anchors_for
from ddas_gpu.pipelines import detection_loader
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import check_space
from ddas_gpu.tasks.detector_evaluation import evaluate_detector
from ddas_gpu.tasks.detectors import build_detector
from ddas_gpu.tasks.facts import PRECISION
from ddas_gpu.tasks.object_counts import counted_on_all_ranks
from ddas_gpu.train.batches import EveryTime, LoaderBatches, batch_size
from ddas_gpu.train.settings import TrainSettings

Tensors = dict[str, torch.Tensor]


class DetectionTraining:
    """A `TrainingTask`."""

    score = PRECISION
    measured = ()

    def __init__(
        self,
        settings: TrainSettings,
        schedule: PolicySchedule | None,
        device: torch.device,
        ranks: Ranks,
    ) -> None:
        require_pycocotools()  # now, not when the first epochs are over
        if schedule is not None:
            check_space(schedule.space, True, f"--policy {settings.policy.policy}")
        self.settings, self.device, self.ranks = settings, device, ranks
        data, training = settings.data, settings.training
        self.train, self.tested = coco_full_sets(data, settings.run.seed)
        self.class_names = self.train.class_names
        self.resize = resize_for(data.resize, data.image_size)
        options = {
            "resize": self.resize,
            "device": "gpu" if device.type == "cuda" else "cpu",
            "num_threads": settings.data.workers or settings.run.threads,
            "shard_id": ranks.rank,
            "num_shards": ranks.count,
        }
        batches = detection_loader(
            self.train,
            schedule,
            batch_size=batch_size(settings, len(self.train.images), ranks),
            epochs=training.epochs,
            flip=data.flip,
            drop_last=True,
            seed=settings.run.seed,
            **options,
        )
        self.batches = LoaderBatches(batches)
        self.steps_per_epoch = self.batches.steps_per_epoch
        self.test_batches = EveryTime(
            detection_loader(
                self.tested, training=False, batch_size=training.test_batch_size, **options
            )
        )

    def build_model(self) -> nn.Module:
        return build_detector(self.settings.training, len(self.class_names)).to(self.device)

    def batch(self, step: int) -> tuple[torch.Tensor, Tensors]:
        batch = self.batches.batch(step)
        scale = self.settings.training.anchor_scale
        anchors = anchors_for(*batch.images.shape[-2:], scale).to(self.device)
        targets = targets_for(anchors, batch.boxes, batch.labels)
        return batch.images, counted_on_all_ranks([targets], self.ranks)[0]

    def loss(self, outputs: Tensors, targets: Tensors) -> torch.Tensor:
        # Sums over all anchors are beyond the range of 16 bits.
        return detection_loss({name: value.float() for name, value in outputs.items()}, targets)

    def measure(self, outputs: Tensors, targets: Tensors) -> list[torch.Tensor]:
        return []

    def test(self, model: nn.Module, weights: Tensors) -> dict[str, float]:
        return evaluate_detector(
            model,
            self.test_batches,
            self.tested.images,
            self.class_names,
            anchor_scale=self.settings.training.anchor_scale,
            weights=weights,
            ranks=self.ranks,
        )

    def fingerprints(self) -> list[int]:
        sets = (self.train, self.tested)
        return [DetectionSet(s.images, s.class_names, self.resize).fingerprint() for s in sets]

    def samples(self) -> DetectionSet:
        return DetectionSet(self.train.images, self.class_names, self.resize)
