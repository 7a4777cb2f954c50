"""The batches of a user's training loop: pixels in either layout, targets of any form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def to_unit_interval(images: torch.Tensor) -> torch.Tensor:
    """Return a uint8 batch of either layout as floats in [0, 1], (B, 3, H, W)."""
    images = images.permute(0, 3, 1, 2) if images.shape[-1] == 3 else images
    return images.float() / 255


def as_pixels(images: Any, size: tuple[int, int]) -> tuple[torch.Tensor, bool]:
    """Return images of one size as (B, H, W, 3), and whether they came as (B, 3, H, W)."""
    height, width = size
    if isinstance(images, torch.Tensor) and images.dtype == torch.uint8:
        if images.shape[1:] == (height, width, 3):
            return images, False
        if images.shape[1:] == (3, height, width):
            return images.permute(0, 2, 3, 1).contiguous(), True
    found = type(images).__name__
    if isinstance(images, torch.Tensor):
        found = f"{images.dtype} of the shape {tuple(images.shape)}"
    raise ValueError(
        f"images are a uint8 batch (B, 3, {height}, {width}) or (B, {height}, {width}, 3), of the "
        f"size of the validation images and before any normalisation, not {found}"
    )


def first_targets(targets: Any, count: int, batch_size: int) -> Any:
    """Return the targets of the first `count` images of a batch.

    Tensors and arrays are cut along their first axis, and so is a list with an entry per image;
    other containers are cut inside.
    """
    if isinstance(targets, (torch.Tensor, np.ndarray)):
        return targets[:count] if targets.ndim else targets
    if isinstance(targets, Mapping):
        return {name: first_targets(part, count, batch_size) for name, part in targets.items()}
    if isinstance(targets, (list, tuple)):
        columns = all(_is_column(part, batch_size) for part in targets)
        if len(targets) == batch_size and not columns:
            return targets[:count]
        parts = [first_targets(part, count, batch_size) for part in targets]
        return type(targets)(*parts) if hasattr(targets, "_fields") else type(targets)(parts)
    return targets


def _is_column(part: Any, batch_size: int) -> bool:
    """Return whether a part of the targets has an entry for each image."""
    return isinstance(part, (torch.Tensor, np.ndarray)) and part.shape[:1] == (batch_size,)
