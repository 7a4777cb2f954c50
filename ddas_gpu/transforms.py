"""The policy as a transform, for trainers with their own data set and DataLoader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from ddas_gpu.data.sources import checksum_of
from ddas_gpu.ops import augment
from ddas_gpu.pipelines import draws
from ddas_gpu.policy import PolicySchedule


class PolicyTransform:
    """Augments one image with the probabilities of the current epoch.

    Takes and returns RGB in uint8: a PIL image (of any mode, converted to RGB), a numpy array
    (H, W, 3), or a torch tensor (3, H, W).

    The draws are a pure function of (seed, epoch, index), so they do not depend on the number or
    the order of the workers. With the image's index in the data set, an image gets the policy that
    a training pipeline gives it; without an index, a checksum of the pixels replaces it.

    >>> transform = PolicyTransform("policy.json", epochs=200)  # a step of your transform
    >>> transform.set_epoch(10)  # at the start of each epoch
    >>> transform(np.zeros((32, 32, 3), np.uint8), index=5).shape
    (32, 32, 3)
    """

    def __init__(self, schedule: PolicySchedule | str | Path, epochs: int, seed: int = 0) -> None:
        if not isinstance(schedule, PolicySchedule):
            schedule = PolicySchedule.load(schedule)
        self.schedule, self.epochs, self.seed = schedule, epochs, seed
        schedule.at(0, epochs)  # raises if the number of epochs is wrong
        # Shared memory: persistent workers see the epoch change.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, also in the workers of a DataLoader. Call it before each epoch."""
        self.schedule.at(epoch, self.epochs)
        self._epoch.fill_(epoch)

    def __call__(self, image: Any, index: int | None = None) -> Any:
        if isinstance(image, Image.Image):
            return Image.fromarray(self._augment(np.asarray(image.convert("RGB")), index))
        if isinstance(image, torch.Tensor):
            if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] != 3:
                raise ValueError(
                    f"a tensor must be uint8 of the shape (3, H, W), not {image.dtype} of "
                    f"{tuple(image.shape)}; put the transform before the normalisation"
                )
            pixels = image.permute(1, 2, 0).contiguous()
            if image.is_cuda:
                return self._augment(pixels, index).permute(2, 0, 1)
            return torch.from_numpy(self._augment(pixels.numpy(), index)).permute(2, 0, 1)
        if isinstance(image, np.ndarray):
            return self._augment(image, index)
        raise TypeError(
            "an image is a PIL image, a uint8 array (H, W, 3) or a uint8 tensor (3, H, W), "
            f"not {type(image).__name__}"
        )

    def _augment(self, pixels: Any, index: int | None) -> Any:
        if index is None:
            host = pixels.cpu().numpy() if isinstance(pixels, torch.Tensor) else pixels
            index = checksum_of(host)
        epoch, sample = self.epoch, np.array([index])
        policies = draws.draw_policies(self.schedule, self.epochs, self.seed, epoch, sample)
        key = draws.sign_key(self.seed, epoch)
        return augment([pixels], policies, self.schedule.space, key, samples=sample)[0]
