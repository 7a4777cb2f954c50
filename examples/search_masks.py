"""Search a policy for segmentation: the masks move with the pixels.

    python examples/search_masks.py --epochs 10

The images are handwritten digits; the network must find their strokes. A `SearchTask` says what
a policy does to the targets. Here they are maps of classes, and `trial.maps` moves them as the ops
move the pixels.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import ddas_gpu
from ddas_gpu.data.digits import open_digits

OUTSIDE = 255  # pixels from outside the image: the loss ignores them


class Strokes(Dataset):
    """Noisy digits, and the mask of the pen's stroke in each: 0 or 1."""

    def __init__(self, first: int, last: int) -> None:
        self.images = open_digits(size=16).images[first:last]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        clean = self.images[index]
        noise = np.random.default_rng(index).integers(0, 80, clean.shape)
        mask = (clean[..., 0] > 100).astype(np.uint8)
        return np.minimum(clean + noise, 255).astype(np.uint8), mask


class Segmentation(ddas_gpu.SearchTask):
    spatial = True  # no random crop and no flip before the policy: they would miss the masks

    def loss(self, outputs: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs, masks.long(), ignore_index=OUTSIDE)

    def versions(self, images: torch.Tensor, masks: torch.Tensor, trial: Any) -> tuple[Any, list]:
        return trial.images(images), list(trial.maps(masks, OUTSIDE))


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 2, 3, padding=1),
    )


def main(arguments: list[str] | None = None) -> ddas_gpu.SearchResult:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args(arguments)
    result = ddas_gpu.search_policy(
        network,
        Strokes(0, 320),
        Strokes(320, 640),
        task=Segmentation(),
        space="digits",
        epochs=options.epochs,
        val_batch_size=64,
    )
    print(result.verdict)
    return result


if __name__ == "__main__":
    main()
