"""Networks for tests, by names such as exact_model:build, on which ranks compute what one does.

They compute in double precision. All but one have their batch norm frozen.
"""

import torch
from narrow_detector import NarrowDetector

from ddas_gpu.models.frozen_batch_norm import freeze_batch_norm
from ddas_gpu.models.small import SmallResNet


class ExactResNet(SmallResNet):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images.double())


class ExactDetector(NarrowDetector):
    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        return super().forward(images.double())


def build(num_classes: int) -> ExactResNet:
    return freeze_batch_norm(ExactResNet(num_classes)).double()


def build_with_norm(num_classes: int) -> ExactResNet:
    return ExactResNet(num_classes).double()


def build_detector(num_classes: int) -> ExactDetector:
    return freeze_batch_norm(ExactDetector(num_classes)).double()
