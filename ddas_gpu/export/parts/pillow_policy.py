"""The policy for Pillow images and numpy arrays."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from PIL import Image

from ddas_gpu.export.parts.pillow_ops import apply
from ddas_gpu.export.parts.schedule import Schedule


class Policy:
    """Augment an RGB image: a PIL image, or a uint8 array (H, W, 3).

    policy = Policy(epochs=90)  # a step of your transform
    policy.set_epoch(epoch)     # before each epoch
    image = policy(image)
    """

    def __init__(self, epochs: int) -> None:
        self.schedule = Schedule(epochs)

    def set_epoch(self, epoch: int) -> None:
        self.schedule.set_epoch(epoch)

    def __call__(self, image: Any) -> Any:
        if isinstance(image, np.ndarray):
            return np.array(self(Image.fromarray(image)))
        image = image.convert("RGB")
        for op, argument in self.schedule.draw(random):
            image = apply(image, op, argument, random)
        return image
