"""The standard transform of a data set after the policy: normalise and Cutout, on tensors."""

from __future__ import annotations

import numpy as np
import torch

from ddas_gpu.data.sources import Images


class Normalise:
    """uint8 (…, H, W, 3) to float (…, 3, H, W) with mean 0 and deviation 1 in each channel.

    The channels stay last in memory, where convolutions want them.
    """

    def __init__(self, images: Images) -> None:
        """Take the mean and deviation of `images`, the training set."""
        flat = [np.asarray(image).reshape(-1, 3) for image in images]
        count = sum(len(pixels) for pixels in flat)
        mean = sum(pixels.sum(0, dtype=np.float64) for pixels in flat) / count
        square = sum((pixels.astype(np.float64) ** 2).sum(0) for pixels in flat) / count
        # A channel of one value has no deviation; a grey level keeps the division harmless.
        deviation = np.maximum(np.sqrt(np.maximum(square - mean**2, 0)), 1.0)
        self.mean = torch.tensor(mean, dtype=torch.float32)
        self.deviation = torch.tensor(deviation, dtype=torch.float32)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        mean, deviation = self.mean.to(images.device), self.deviation.to(images.device)
        return ((images.float() - mean) / deviation).movedim(-1, -3)


def cutout_holes(
    count: int, height: int, width: int, side: int, generator: np.random.Generator
) -> torch.Tensor:
    """(count, 1, H, W) bool, True in a `side` × `side` hole around a random pixel of each image.

    The same holes go into all versions of a batch; what they cover becomes 0, the mean colour.
    """
    centres = generator.integers(0, (height, width), size=(count, 2))
    starts = centres - side // 2
    rows = np.arange(height) - starts[:, :1]
    columns = np.arange(width) - starts[:, 1:]
    inside = ((0 <= rows) & (rows < side))[:, :, None] & ((0 <= columns) & (columns < side))[
        :, None
    ]
    return torch.from_numpy(inside[:, None])
