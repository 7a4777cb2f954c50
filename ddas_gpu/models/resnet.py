"""Residual networks for ImageNet (He et al., 2016), stride in the 3x3 convolution."""

import torch
from torch import nn
from torch.nn import functional as F

from ddas_gpu.models.initialisation import he_initialise


def _convolution(in_channels: int, out_channels: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2, bias=False)


class _Block(nn.Module):
    """layers(x) plus x, projected if shapes differ; (N, C_in, H, W) -> (N, C_out, H', W')."""

    def __init__(self, layers: nn.Sequential, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self.layers = layers
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                _convolution(in_channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.layers(x) + self.shortcut(x))


class BasicBlock(_Block):
    """Two 3x3 convolutions: ResNet-18."""

    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int):
        layers = nn.Sequential(
            _convolution(in_channels, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _convolution(width, width, 3),
            nn.BatchNorm2d(width),
        )
        super().__init__(layers, in_channels, width, stride)


class Bottleneck(_Block):
    """1x1, 3x3 and 1x1 convolutions, the last four times as wide: ResNet-50 and deeper."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int):
        out_channels = width * self.expansion
        layers = nn.Sequential(
            _convolution(in_channels, width, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _convolution(width, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            _convolution(width, out_channels, 1),
            nn.BatchNorm2d(out_channels),
        )
        super().__init__(layers, in_channels, out_channels, stride)


DEPTHS: dict[int, tuple[type[BasicBlock | Bottleneck], tuple[int, int, int, int]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
    200: (Bottleneck, (3, 24, 36, 3)),
}


class ResNet(nn.Module):
    """Images (N, 3, H, W) -> logits (N, num_classes); `features` serves detection."""

    def __init__(self, depth: int, num_classes: int):
        super().__init__()
        if depth not in DEPTHS:
            raise ValueError(
                f"no ResNet of depth {depth}; there are: {', '.join(map(str, DEPTHS))}"
            )
        block, blocks_per_stage = DEPTHS[depth]
        self.stem = nn.Sequential(
            _convolution(3, 64, 7, stride=2),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        channels = 64
        stages = []
        for stage, blocks in enumerate(blocks_per_stage):
            width = 64 * 2**stage
            layers = []
            for index in range(blocks):
                stride = 2 if stage > 0 and index == 0 else 1
                layers.append(block(channels, width, stride))
                channels = width * block.expansion
            stages.append(nn.Sequential(*layers))
        self.stages = nn.ModuleList(stages)
        self.classifier = nn.Linear(channels, num_classes)
        he_initialise(self)

    def features(self, images: torch.Tensor) -> list[torch.Tensor]:
        """The outputs of the four stages, at 1/4, 1/8, 1/16 and 1/32 of the image's size."""
        outputs = []
        x = self.stem(images)
        for stage in self.stages:
            x = stage(x)
            outputs.append(x)
        return outputs

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images)[-1].mean((2, 3)))
