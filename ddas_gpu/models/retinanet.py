"""RetinaNet (Lin et al., "Focal Loss for Dense Object Detection", 2017)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from ddas_gpu.models.anchors import PER_PLACE
from ddas_gpu.models.feature_pyramid import FeaturePyramid
from ddas_gpu.models.resnet import DEPTHS, ResNet

CONVOLUTIONS = 4  # in each head before the last
PRIOR = 0.01  # initial probability of an object at every anchor


class Head(nn.Module):
    """A head shared by all levels: (N, C, H, W) -> (N, H·W·PER_PLACE, outputs)."""

    def __init__(self, channels: int, outputs: int, bias: float = 0.0):
        super().__init__()
        self.outputs = outputs
        self.tower = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1) for _ in range(CONVOLUTIONS)
        )
        self.last = nn.Conv2d(channels, PER_PLACE * outputs, 3, padding=1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and module.bias is not None:
                nn.init.normal_(module.weight, std=0.01)
                nn.init.constant_(module.bias, bias if module is self.last else 0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.tower:
            x = F.relu(layer(x))
        # Positions row by row, then anchors, then outputs: the order of `anchors_for`.
        return self.last(x).movedim(1, -1).reshape(x.shape[0], -1, self.outputs)


class RetinaNet(nn.Module):
    """Images (N, 3, H, W) -> {"logits": (N, A, classes), "deltas": (N, A, 4)}.

    A is the number of anchors of `anchors_for(H, W)`. Logits are one binary classifier per class,
    without a background class; deltas are those of `detection.boxes.encode`.
    """

    def __init__(self, depth: int, num_classes: int, channels: int = 256):
        super().__init__()
        self.backbone = ResNet(depth, num_classes=1)
        del self.backbone.classifier  # it would get no gradient
        expansion = DEPTHS[depth][0].expansion
        self.pyramid = FeaturePyramid((128 * expansion, 256 * expansion, 512 * expansion), channels)
        self.classes = Head(channels, num_classes, bias=-math.log((1 - PRIOR) / PRIOR))
        self.boxes = Head(channels, 4)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        maps = self.pyramid(self.backbone.features(images)[1:])
        return {
            "logits": torch.cat([self.classes(x) for x in maps], 1),
            "deltas": torch.cat([self.boxes(x) for x in maps], 1),
        }
