"""Geometry of boxes: corners x0 y0 x1 y1 in pixels."""

from __future__ import annotations

import math

import torch

# Bound on the log of a box's size relative to its anchor, so that exp stays finite.
LARGEST_LOG = math.log(1000 / 16)


def areas(boxes: torch.Tensor) -> torch.Tensor:
    """Return the areas (...) of boxes (..., 4)."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def overlaps(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the IoU (n, m) of boxes (n, 4) and (m, 4); 0 where both areas are 0."""
    corner = torch.maximum(one[:, None, :2], other[None, :, :2])
    opposite = torch.minimum(one[:, None, 2:], other[None, :, 2:])
    common = (opposite - corner).clamp_(min=0).prod(-1)
    union = areas(one)[:, None] + areas(other) - common
    return torch.where(union > 0, common / union, torch.zeros_like(common))


def encode(boxes: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """Return the deltas of boxes to anchors, both (..., 4): relative shift, log of size ratio."""
    size, anchor_size = boxes[..., 2:] - boxes[..., :2], anchors[..., 2:] - anchors[..., :2]
    shift = (boxes[..., :2] + boxes[..., 2:] - anchors[..., :2] - anchors[..., 2:]) / 2
    return torch.cat([shift / anchor_size, torch.log(size / anchor_size)], -1)


def decode(deltas: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """Return the boxes with these deltas to `anchors`; the inverse of `encode`."""
    anchor_size = anchors[..., 2:] - anchors[..., :2]
    centre = (anchors[..., :2] + anchors[..., 2:]) / 2 + deltas[..., :2] * anchor_size
    half = anchor_size * torch.exp(deltas[..., 2:].clamp(max=LARGEST_LOG)) / 2
    return torch.cat([centre - half, centre + half], -1)


def clip(boxes: torch.Tensor, height: float, width: float) -> torch.Tensor:
    """Clip boxes to an image of this size."""
    low = boxes.new_zeros(4)
    return torch.maximum(torch.minimum(boxes, boxes.new_tensor([width, height] * 2)), low)
