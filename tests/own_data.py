"""A user's own network and data for tests: a few digits, 16 pixels per side."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from ddas_gpu.data.digits import open_digits

DIGITS = open_digits(16)
TRAIN, VALIDATION = slice(0, 32), slice(32, 72)


class Digits(Dataset):
    """Some digits, in the form that `change` gives them."""

    def __init__(self, part: slice, change: Any = None) -> None:
        self.images, self.labels = DIGITS.images[part], DIGITS.labels[part]
        self.change = change

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        image, label = self.images[index], int(self.labels[index])
        return (image, label) if self.change is None else self.change(image, label)


class Net(nn.Module):
    """A small network with batch norm."""

    def __init__(self, outputs: int = 10, width: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(4 * width, outputs)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images))


def network(outputs: int = 10, width: int = 8) -> Net:
    torch.manual_seed(0)
    return Net(outputs, width)


def arrays(part: slice) -> tuple[np.ndarray, np.ndarray]:
    return DIGITS.images[part], DIGITS.labels[part]
