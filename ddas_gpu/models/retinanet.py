"""RetinaNet (Lin et al., "Focal Loss for Dense Object Detection", 2017)."""

from __future__ import annotations

import functools
import math
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ddas_gpu.models.initialisation import he_initialise
from ddas_gpu.models.resnet import DEPTHS, ResNet
from ddas_gpu.models.small import SmallBlock

# Nine anchors at every position of five feature maps.
STRIDES = (8, 16, 32, 64, 128)  # pixels between the positions of P3 … P7
RATIOS = (0.5, 1.0, 2.0)  # height to width
OCTAVES = (2 ** (0 / 3), 2 ** (1 / 3), 2 ** (2 / 3))
PER_PLACE = len(RATIOS) * len(OCTAVES)

CONVOLUTIONS = 4  # in each head before the last
PRIOR = 0.01  # initial probability of an object at every anchor


def level_shapes(height: int, width: int) -> list[tuple[int, int]]:
    """Return (rows, columns) of P3 … P7 for images of this size."""
    return [(math.ceil(height / stride), math.ceil(width / stride)) for stride in STRIDES]


@functools.lru_cache(maxsize=16)
def anchors_for(height: int, width: int, scale: float = 4.0) -> torch.Tensor:
    """Return (A, 4) float32 corners x0 y0 x1 y1, in the order of the network's predictions.

    The smallest anchor of a level has a side of `scale` strides: 4 in the paper, for images of
    about 800 pixels. For images a few times smaller, 1 or 2 fits the size of their objects.
    """
    levels = []
    for stride, (rows, columns) in zip(STRIDES, level_shapes(height, width), strict=True):
        sides = torch.tensor([scale * stride * octave for octave in OCTAVES], dtype=torch.float64)
        roots = torch.tensor(RATIOS, dtype=torch.float64).sqrt()
        widths = (sides[:, None] / roots).flatten()
        heights = (sides[:, None] * roots).flatten()
        x = (torch.arange(columns, dtype=torch.float64) + 0.5) * stride
        y = (torch.arange(rows, dtype=torch.float64) + 0.5) * stride
        # (rows, columns, anchors)
        x, y = x[None, :, None], y[:, None, None]
        corners = (x - widths / 2, y - heights / 2, x + widths / 2, y + heights / 2)
        shape = (rows, columns, PER_PLACE)
        levels.append(torch.stack([c.expand(shape) for c in corners], -1).reshape(-1, 4))
    return torch.cat(levels).float()


class FeaturePyramid(nn.Module):
    """Feature pyramid (Lin et al., 2017) with five maps.

    C3, C4, C5 -> P3 … P7, each (N, channels, H/stride, W/stride) for strides 8 … 128.
    """

    def __init__(self, in_channels: tuple[int, int, int], channels: int = 256):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(width, channels, 1) for width in in_channels)
        self.smooth = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1) for _ in in_channels
        )
        self.p6 = nn.Conv2d(in_channels[-1], channels, 3, stride=2, padding=1)
        self.p7 = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and module.bias is not None:
                nn.init.kaiming_uniform_(module.weight, a=1)
                nn.init.zeros_(module.bias)

    def forward(self, features: list[torch.Tensor]) -> list[torch.Tensor]:
        merged = [conv(feature) for conv, feature in zip(self.lateral, features, strict=True)]
        for finer in (1, 0):
            # Resize to the finer map rather than by 2: sizes may be odd.
            up = F.interpolate(merged[finer + 1], size=merged[finer].shape[-2:], mode="nearest")
            merged[finer] = merged[finer] + up
        maps = [conv(x) for conv, x in zip(self.smooth, merged, strict=True)]
        p6 = self.p6(features[-1])
        return [*maps, p6, self.p7(F.relu(p6))]


class Head(nn.Module):
    """A head shared by all levels: (N, C, H, W) -> (N, H·W·PER_PLACE, outputs).

    normalised: with a group norm after every convolution, so that it learns from scratch.
    """

    def __init__(
        self,
        channels: int,
        outputs: int,
        bias: float = 0.0,
        convolutions: int = CONVOLUTIONS,
        normalised: bool = False,
    ):
        super().__init__()
        self.outputs = outputs
        self.tower = nn.ModuleList(
            _normalised_convolution(channels)
            if normalised
            else nn.Conv2d(channels, channels, 3, padding=1)
            for _ in range(convolutions)
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


def _normalised_convolution(channels: int) -> nn.Sequential:
    convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(convolution.weight)
    return nn.Sequential(convolution, nn.GroupNorm(channels // 8, channels))


class Detector(nn.Module):
    """Images (N, 3, H, W) -> {"logits": (N, A, classes), "deltas": (N, A, 4)}.

    A is the number of anchors of `anchors_for(H, W)`. Logits are one binary classifier per class,
    without a background class; deltas are those of `detection.boxes.encode`.

    backbone: has `features`, whose last three maps have the strides 8, 16 and 32.
    """

    backbone: ResNet | SmallBackbone

    def __init__(
        self,
        backbone: ResNet | SmallBackbone,
        widths: tuple[int, int, int],
        num_classes: int,
        channels: int,
        **head: Any,
    ):
        super().__init__()
        self.backbone = backbone
        self.pyramid = FeaturePyramid(widths, channels)
        expecting_nothing = -math.log((1 - PRIOR) / PRIOR)
        self.classes = Head(channels, num_classes, expecting_nothing, **head)
        self.boxes = Head(channels, 4, **head)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        maps = self.pyramid(self.backbone.features(images)[-3:])
        return {
            "logits": torch.cat([self.classes(x) for x in maps], 1),
            "deltas": torch.cat([self.boxes(x) for x in maps], 1),
        }


class RetinaNet(Detector):
    """The detector on a ResNet of this depth."""

    def __init__(self, depth: int, num_classes: int, channels: int = 256):
        backbone = ResNet(depth, num_classes=1)
        del backbone.classifier  # it would get no gradient
        expansion = DEPTHS[depth][0].expansion
        widths = (128 * expansion, 256 * expansion, 512 * expansion)
        super().__init__(backbone, widths, num_classes, channels)


class SmallBackbone(nn.Module):
    """Narrow residual blocks, which halve the image five times."""

    def __init__(self, widths: tuple[int, int, int, int, int]):
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        self.blocks = nn.ModuleList(
            SmallBlock(before, width, stride=2) for before, width in pairwise(widths)
        )
        he_initialise(self)

    def features(self, images: torch.Tensor) -> list[torch.Tensor]:
        x, outputs = F.relu(self.norm(self.stem(images))), []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        return outputs


class SmallRetinaNet(Detector):
    """RetinaNet with few and narrow layers, to learn from scratch within minutes on a CPU."""

    def __init__(self, num_classes: int, channels: int = 48):
        widths = (16, 32, 48, 64, 96)
        backbone = SmallBackbone(widths)
        super().__init__(
            backbone, widths[2:], num_classes, channels, convolutions=2, normalised=True
        )
