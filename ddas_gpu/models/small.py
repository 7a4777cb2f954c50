"""A small residual network that trains in seconds on two CPU cores."""

import torch
from torch import nn
from torch.nn import functional as F

from ddas_gpu.models.initialisation import he_initialise


class SmallBlock(nn.Module):
    """conv-BN-ReLU-conv-BN plus a shortcut; (N, C_in, H, W) -> (N, C_out, H/stride, W/stride)."""

    def __init__(self, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


class SmallResNet(nn.Module):
    """Images (N, 3, H, W) with H, W of about 16 to 32 -> logits (N, num_classes)."""

    def __init__(self, num_classes: int, width: int = 16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(
            SmallBlock(width, 2 * width, stride=2),
            SmallBlock(2 * width, 3 * width, stride=1),
        )
        self.classifier = nn.Linear(3 * width, num_classes)
        he_initialise(self)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.blocks(F.relu(self.norm(self.stem(images))))
        return self.classifier(features.mean((2, 3)))
