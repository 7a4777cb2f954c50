"""Images of different sizes as one tensor for the network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

# ImageNet's, which backbone weights are made for.
MEAN = (123.675, 116.28, 103.53)
DEVIATION = (58.395, 57.12, 57.375)
# Sides of batches are multiples of this, so that few sizes occur.
MULTIPLE = 32


def padded_size(images: Sequence[np.ndarray | torch.Tensor]) -> tuple[int, int]:
    """Height and width that hold every one of `images` (H, W, 3)."""
    return common_size([tuple(image.shape[:2]) for image in images])


def common_size(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Height and width of a batch that holds images of these."""
    sides = np.array(sizes).max(0)
    height, width = (-(-sides // MULTIPLE) * MULTIPLE).tolist()
    return height, width


def network_inputs(
    images: Sequence[np.ndarray | torch.Tensor],
    device: torch.device | str = "cpu",
    mean: Sequence[float] = MEAN,
    deviation: Sequence[float] = DEVIATION,
) -> torch.Tensor:
    """uint8 (H, W, 3) of any sizes -> float (N, 3, H, W), normalised, then padded with 0.

    The padding is at the right and below: boxes stay where they are. The channels stay last in
    memory, where convolutions want them.
    """
    mean, deviation = (torch.tensor(v, device=device) for v in (mean, deviation))
    height, width = padded_size(images)
    inputs = torch.zeros(len(images), height, width, 3, device=device)
    for place, image in zip(inputs, images, strict=True):
        pixels = torch.as_tensor(image).to(device)
        place[: image.shape[0], : image.shape[1]] = (pixels - mean) / deviation
    return inputs.movedim(-1, 1)
