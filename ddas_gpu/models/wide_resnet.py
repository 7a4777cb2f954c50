"""Wide residual networks for 32-pixel images (Zagoruyko & Komodakis, 2016)."""

import torch
from torch import nn
from torch.nn import functional as F

from ddas_gpu.models.initialisation import he_initialise


class WideBlock(nn.Module):
    """BN-ReLU-conv twice plus the identity; (N, C_in, H, W) -> (N, C_out, H/stride, W/stride)."""

    def __init__(self, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.shortcut = None
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        activated = F.relu(self.norm1(x))
        # As published: a block that changes shape feeds the *activated* input to its shortcut.
        residual = x if self.shortcut is None else self.shortcut(activated)
        out = self.conv1(activated)
        out = self.conv2(F.relu(self.norm2(out)))
        return out + residual


class WideResNet(nn.Module):
    """WRN-depth-width; images (N, 3, H, W) -> logits (N, num_classes)."""

    def __init__(self, depth: int, width: int, num_classes: int):
        super().__init__()
        if depth < 10 or (depth - 4) % 6 != 0:
            raise ValueError(
                f"a wide ResNet has depth 6n + 4 with n >= 1 (10, 16, 22, 28, 40, ...), got {depth}"
            )
        if width < 1:
            raise ValueError(f"the width of a wide ResNet is at least 1, got {width}")
        blocks_per_group = (depth - 4) // 6
        channels = 16
        self.stem = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        blocks = []
        for group, base_channels in enumerate((16, 32, 64)):
            for block in range(blocks_per_group):
                stride = 2 if group > 0 and block == 0 else 1
                blocks.append(WideBlock(channels, base_channels * width, stride))
                channels = base_channels * width
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, num_classes)
        he_initialise(self)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = F.relu(self.norm(self.blocks(self.stem(images))))
        return self.classifier(features.mean((2, 3)))
