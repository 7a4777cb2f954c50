"""Feature pyramid (Lin et al., 2017) as in RetinaNet: five maps with the same channels."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class FeaturePyramid(nn.Module):
    """C3, C4, C5 -> P3 … P7, each (N, channels, H/stride, W/stride) for strides 8 … 128."""

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
