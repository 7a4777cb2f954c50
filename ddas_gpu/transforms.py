"""The policy for trainers that keep their own data set and DataLoader."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from ddas_gpu.ops import augment
from ddas_gpu.pipelines import draws
from ddas_gpu.policy import PolicySchedule


class PolicyTransform:
    """Augments one image, with the probabilities of the present epoch.

    Takes and returns, always RGB and uint8: a PIL image (of any mode, which becomes RGB), a numpy
    array (H, W, 3), or a torch tensor (3, H, W), the layout of tensors everywhere in PyTorch.

    What is drawn is a pure function of (seed, epoch, index). The index is that of the image in
    the data set, if the data set tells it; then an image gets the policy that a training pipeline
    gives it. Else a checksum of the pixels takes its place. Either way any number of workers, in
    any order, draws the same.

    >>> transform = PolicyTransform(PolicySchedule.load("policy.json"), epochs=200)
    >>> images = DataLoader(ImageFolder(root, Compose([RandomResizedCrop(224), transform, …])), …)
    >>> for epoch in range(200):
    ...     transform.set_epoch(epoch)
    """

    def __init__(self, schedule: PolicySchedule | str | Path, epochs: int, seed: int = 0) -> None:
        if not isinstance(schedule, PolicySchedule):
            schedule = PolicySchedule.load(schedule)
        self.schedule, self.epochs, self.seed = schedule, epochs, seed
        schedule.at(0, epochs)  # complains about a wrong number of epochs
        # Shared memory: workers that live for many epochs see it change.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """To be called before each epoch; also reaches the workers of a DataLoader."""
        self.schedule.at(epoch, self.epochs)
        self._epoch.fill_(epoch)

    def __call__(self, image: Any, index: int | None = None) -> Any:
        if isinstance(image, Image.Image):
            return Image.fromarray(self._augment(np.asarray(image.convert("RGB")), index))
        if isinstance(image, torch.Tensor):
            if image.dtype != torch.uint8 or image.ndim != 3 or image.shape[0] != 3:
                raise ValueError(
                    f"a tensor must be uint8 of the shape (3, H, W), not {image.dtype} of "
                    f"{tuple(image.shape)}; put the transform in front of the normalisation"
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
            index = zlib.crc32(np.ascontiguousarray(host))
        epoch, sample = self.epoch, np.array([index])
        policies = draws.draw_policies(self.schedule, self.epochs, self.seed, epoch, sample)
        key = draws.sign_key(self.seed, epoch)
        return augment([pixels], policies, self.schedule.space, key, samples=sample)[0]
