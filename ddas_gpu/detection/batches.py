"""Batching images of different sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

# ImageNet's, which published backbone weights expect.
MEAN = (123.675, 116.28, 103.53)
DEVIATION = (58.395, 57.12, 57.375)
# Pad to multiples of this, so that few different sizes occur.
MULTIPLE = 32


def padded_size(images: Sequence[np.ndarray | torch.Tensor]) -> tuple[int, int]:
    """Return the padded height and width for `images` (H, W, 3)."""
    return common_size([(image.shape[0], image.shape[1]) for image in images])


def common_size(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the padded height and width for images of these sizes."""
    sides = np.array(sizes).max(0)
    height, width = (-(-sides // MULTIPLE) * MULTIPLE).tolist()
    return height, width


def network_inputs(
    images: Sequence[np.ndarray | torch.Tensor],
    device: torch.device | str = "cpu",
    mean: Sequence[float] = MEAN,
    deviation: Sequence[float] = DEVIATION,
) -> torch.Tensor:
    """Return float (N, 3, H, W), normalised and then padded with 0, of uint8 (H, W, 3) each.

    The padding is at the right and at the bottom, so that boxes keep their coordinates. The memory
    format is channels_last, which convolutions prefer.
    """
    shift, scale = (torch.tensor(v, device=device) for v in (mean, deviation))
    height, width = padded_size(images)
    inputs = torch.zeros(len(images), height, width, 3, device=device)
    for place, image in zip(inputs, images, strict=True):
        pixels = torch.as_tensor(image).to(device)
        place[: image.shape[0], : image.shape[1]] = (pixels - shift) / scale
    return inputs.movedim(-1, 1)
