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
PRIOR = 0.01  # probability of an object that an untrained network gives every anchor


class Head(nn.Module):
    """A small network that all levels share: (N, C, H, W) -> (N, H·W·PER_PLACE, outputs)."""

    def __init__(self, channels: int, outputs: int, bias: float = 0.0):
        super().__init__()
        self.outputs = outputs
        self.tower = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1) for _ in range(CONVOLUTIONS)
        )
        self.last = nn.Conv2d(channels, PER_PLACE * outputs, 3, padding=1)
        for layer in (*self.tower, self.last):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)
        nn.init.constant_(self.last.bias, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.tower:
            x = F.relu(layer(x))
        # Channels are anchor by anchor; places run row by row, as `anchors_for` has them.
        return self.last(x).movedim(1, -1).reshape(x.shape[0], -1, self.outputs)


class RetinaNet(nn.Module):
    """Images (N, 3, H, W) -> {"logits": (N, A, classes), "deltas": (N, A, 4)}.

    A counts the anchors of `anchors_for(H, W)`. Logits are one yes-or-no question a class (there
    is no class for the background); deltas say how a box differs from its anchor.
    """

    def __init__(self, depth: int, num_classes: int, channels: int = 256):
        super().__init__()
        self.backbone = ResNet(depth, num_classes=1)
        del self.backbone.classifier  # a parameter without a gradient would be of no use
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
