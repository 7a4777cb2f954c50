"""Ultralytics: a trainer of detectors whose training images pass through a policy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from ultralytics.data.augment import Compose
from ultralytics.models.yolo.detect import DetectionTrainer

from ddas_gpu.policy import PolicyLike, open_policy
from ddas_gpu.transforms import BoxPolicyTransform

__all__ = ["PolicyStep", "policy_trainer"]


class PolicyStep:
    """A policy as a step of an Ultralytics data set, before the one that makes tensors.

    labels: {"img": uint8 (H, W, 3) in the order BGR, "instances": the boxes, "cls": their classes}.
    """

    def __init__(self, policy: BoxPolicyTransform) -> None:
        self.policy = policy

    def __call__(self, labels: dict[str, Any]) -> dict[str, Any]:
        image, found = labels["img"], labels["instances"]
        height, width = image.shape[:2]
        found.convert_bbox("xyxy")
        found.denormalize(width, height)
        pixels, boxes, kept = self.policy(image[..., ::-1], found.bboxes, np.arange(len(found)))
        found = found[kept]
        found.update(boxes)
        changed = {"img": np.ascontiguousarray(pixels[..., ::-1]), "instances": found}
        return labels | changed | {"cls": labels["cls"][kept]}


def policy_trainer(schedule: PolicyLike) -> type[DetectionTrainer]:
    """Return a trainer for `YOLO.train`: Ultralytics' own augmentation, then the policy.

        YOLO("yolo11n.pt").train(trainer=policy_trainer("policy.json"), data="mine.yaml")

    The number of epochs and the seed are those of the training. It runs in one process.
    """
    opened = open_policy(schedule)

    class PolicyTrainer(DetectionTrainer):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.policy = BoxPolicyTransform(opened, self.epochs, self.args.seed)
            self.add_callback("on_train_epoch_start", _set_epoch)

        def train(self) -> None:
            if self.world_size > 1:
                raise ValueError(
                    "policy_trainer runs in one process: the processes that Ultralytics starts for "
                    "more GPUs cannot find the policy; take one device"
                )
            super().train()

        def build_dataset(self, img_path: str, mode: str = "train", batch: Any = None) -> Any:
            dataset = super().build_dataset(img_path, mode, batch)
            if mode == "train":
                add_policy(dataset, self.policy)
            return dataset

    return PolicyTrainer


def add_policy(dataset: Any, policy: BoxPolicyTransform) -> None:
    """Put a policy into the transforms of a data set, also into those it will build anew.

    Without that it would be lost in the last epochs, which Ultralytics trains without mosaics.
    """
    dataset.build_transforms = partial(_with_policy, type(dataset), dataset, policy)
    _insert(dataset.transforms, policy)


def _with_policy(kind: type, dataset: Any, policy: BoxPolicyTransform, hyp: Any) -> Compose:
    transforms = kind.build_transforms(dataset, hyp)  # type: ignore[attr-defined]
    _insert(transforms, policy)
    return transforms


def _insert(transforms: Compose, policy: BoxPolicyTransform) -> None:
    transforms.insert(len(transforms.transforms) - 1, PolicyStep(policy))


def _set_epoch(trainer: Any) -> None:
    trainer.policy.set_epoch(trainer.epoch)
