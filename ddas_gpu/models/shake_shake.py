"""Shake-Shake regularised networks for 32-pixel images (Gastaldi, 2017): "26 2x96d" and kin."""

import torch
from torch import nn
from torch.nn import functional as F

from ddas_gpu.models.initialisation import he_initialise


def shake(first: torch.Tensor, second: torch.Tensor, training: bool) -> torch.Tensor:
    """Mix two branches, (N, C, H, W) each, at random, with another mix in the backward pass.

    Forward α·first + (1−α)·second, backward as for β·first + (1−β)·second, with
    α and β from U(0, 1), independent and drawn for each image; both 1/2 outside training.

    Written with `detach` rather than as an autograd function, so that every transform of
    torch.func sees β in the backward pass, too.
    """
    if not training:
        return (first + second) / 2
    shape = (len(first), 1, 1, 1)
    alpha = torch.rand(shape, device=first.device, dtype=first.dtype)
    beta = torch.rand(shape, device=first.device, dtype=first.dtype)
    backward = torch.lerp(second, first, beta)
    with torch.no_grad():
        correction = torch.lerp(second, first, alpha) - backward
    return backward + correction.detach()


class ShiftedShortcut(nn.Module):
    """Subsamples the image on two grids, one pixel apart; each gives half of the channels."""

    def __init__(self, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self.stride = stride
        self.conv1 = nn.Conv2d(in_channels, out_channels // 2, 1, bias=False)
        self.conv2 = nn.Conv2d(in_channels, out_channels // 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(x)
        shifted = F.pad(x, (-1, 1, -1, 1))
        on_grid = self.conv1(F.avg_pool2d(x, 1, self.stride))
        off_grid = self.conv2(F.avg_pool2d(shifted, 1, self.stride))
        return self.norm(torch.cat((on_grid, off_grid), dim=1))


class ShakeBlock(nn.Module):
    """Two shaken branches plus the shortcut; (N, C_in, H, W) -> (N, C_out, H/stride, W/stride)."""

    def __init__(self, in_channels: int, out_channels: int, stride: int):
        super().__init__()
        self.branch1 = self._branch(in_channels, out_channels, stride)
        self.branch2 = self._branch(in_channels, out_channels, stride)
        self.shortcut: nn.Module = nn.Identity()
        if in_channels != out_channels:
            self.shortcut = ShiftedShortcut(in_channels, out_channels, stride)

    @staticmethod
    def _branch(in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shortcut(x) + shake(self.branch1(x), self.branch2(x), self.training)


class ShakeShake(nn.Module):
    """Depth-`depth` network of 2 branches x `width` channels; images -> logits (N, num_classes)."""

    def __init__(self, depth: int, width: int, num_classes: int):
        super().__init__()
        if depth < 8 or (depth - 2) % 6 != 0:
            raise ValueError(f"a Shake-Shake network has depth 6n + 2 with n >= 1, got {depth}")
        if width < 2 or width % 2:
            raise ValueError(f"the width of a Shake-Shake network is even, got {width}")
        blocks_per_stage = (depth - 2) // 6
        channels = 16
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        )
        blocks = []
        for stage in range(3):
            for block in range(blocks_per_stage):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(ShakeBlock(channels, width * 2**stage, stride))
                channels = width * 2**stage
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, num_classes)
        he_initialise(self)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = F.relu(self.blocks(self.stem(images)))
        return self.classifier(features.mean((2, 3)))
