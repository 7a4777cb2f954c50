"""Ops that move pixels or cut them out.

`nearest` gathers with the coefficients of the op table and returns Pillow's pixels. `bilinear`
samples at the same positions; at its edges the image fades to black over one pixel, so
the result is continuous in the argument.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from ddas_gpu.ops.kornia.entries import BILINEAR, Call, moves
from ddas_gpu.ops.records import numbers_of


@moves()
def Identity(images: Tensor, call: Call) -> Tensor:
    return images.clone()


@moves()
def FlipLR(images: Tensor, call: Call) -> Tensor:
    return images.flip(3)


@moves()
def FlipUD(images: Tensor, call: Call) -> Tensor:
    return images.flip(2)


@moves()
def Rotate90(images: Tensor, call: Call) -> Tensor:
    return torch.rot90(images, 1, (2, 3))


@moves()
def Cutout(images: Tensor, call: Call) -> Tensor:
    """0 inside the rectangle"""
    assert call.centres is not None
    _, _, height, width = images.shape
    sizes = [numbers_of(call.op, value, height, width).ints for value in call.values]
    sides = torch.tensor(sizes, device=images.device)  # (1 or B, 2): width, height
    start = call.centres - sides // 2

    def covered(axis: int, size: int) -> Tensor:
        first = start[:, axis, None]
        places = torch.arange(size, device=images.device)
        return (places >= first) & (places < first + sides[:, axis, None])

    hole = covered(1, height)[:, None, :, None] & covered(0, width)[:, None, None, :]
    return images.masked_fill(hole, call.fill)


# --- the affine ops -------------------------------------------------------------------------------
# A matrix maps a position in the image, in pixel indices, to its position in the result. Pillow's
# origin is the corner of the first pixel, which is half a pixel from its index: hence the 0.5.


@moves(argument=BILINEAR)
def Rotate(images: Tensor, call: Call) -> Tensor:
    """per degree"""

    def matrix(degrees: Tensor) -> Tensor:
        cos, sin = torch.cos(torch.deg2rad(degrees)), torch.sin(torch.deg2rad(degrees))
        x, y = (images.shape[3] - 1) / 2, (images.shape[2] - 1) / 2
        rows = (cos, sin, x - cos * x - sin * y), (-sin, cos, y + sin * x - cos * y)
        return torch.stack([torch.stack(row, -1) for row in rows], -2)

    return warp(images, call, matrix)


@moves(argument=BILINEAR)
def ShearX(images: Tensor, call: Call) -> Tensor:
    return warp(images, call, away_from_identity(((0, -1, -0.5), (0, 0, 0))))


@moves(argument=BILINEAR)
def ShearY(images: Tensor, call: Call) -> Tensor:
    return warp(images, call, away_from_identity(((0, 0, 0), (-1, 0, -0.5))))


@moves(argument=BILINEAR)
def TranslateX(images: Tensor, call: Call) -> Tensor:
    """per pixel; fractions of a pixel are accepted"""
    return warp(images, call, away_from_identity(((0, 0, -1), (0, 0, 0))))


@moves(argument=BILINEAR)
def TranslateY(images: Tensor, call: Call) -> Tensor:
    """per pixel; fractions of a pixel are accepted"""
    return warp(images, call, away_from_identity(((0, 0, 0), (0, 0, -1))))


@moves(argument=BILINEAR)
def Shrink(images: Tensor, call: Call) -> Tensor:
    """not rounded to 1/64"""
    return warp(images, call, about_centre(images))


@moves(argument=BILINEAR)
def Enlarge(images: Tensor, call: Call) -> Tensor:
    """not rounded to 1/64"""
    return warp(images, call, about_centre(images))


def about_centre(images: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the matrix of a zoom as a function of its step."""

    def matrix(step: Tensor) -> Tensor:
        size, still = 1 / step, torch.zeros_like(step)
        x, y = ((1 - size) * (side - 1) / 2 for side in (images.shape[3], images.shape[2]))
        rows = (size, still, x), (still, size, y)
        return torch.stack([torch.stack(row, -1) for row in rows], -2)

    return matrix


def away_from_identity(direction: tuple[tuple[float, ...], ...]) -> Callable[[Tensor], Tensor]:
    """Return the matrix as a function of an argument in which it is linear."""

    def matrix(argument: Tensor) -> Tensor:
        identity = torch.eye(2, 3, dtype=argument.dtype, device=argument.device)
        return identity + argument.view(-1, 1, 1) * argument.new_tensor(direction)

    return matrix


def warp(images: Tensor, call: Call, matrix: Callable[[Tensor], Tensor]) -> Tensor:
    """Transform the images; `matrix` maps the argument, (1,) or (B,), to (1 or B, 2, 3)."""
    if call.interpolation == "nearest":
        return gather(images, call)
    # Not kornia's warp_affine: before 0.9 its shifts are W / (W - 1) times too long here.
    # align_corners=True would divide by the size less 1.
    moved = matrix(call.argument.flatten()).expand(len(images), 2, 3)
    moved = torch.cat([moved, moved.new_tensor([[[0, 0, 1]]]).expand(len(images), 1, 3)], 1)
    height, width = images.shape[2:]
    unit = moved.new_tensor([[2 / width, 0, 1 / width - 1], [0, 2 / height, 1 / height - 1]])
    unit = torch.cat([unit, unit.new_tensor([[0, 0, 1]])])  # pixels to -1 … 1
    back = unit @ torch.linalg.inv(moved) @ torch.linalg.inv(unit)
    grid = affine_grid(back[:, :2], list(images.shape), align_corners=False)
    return grid_sample(images, grid.to(images.dtype), align_corners=False)


def gather(images: Tensor, call: Call) -> Tensor:
    """Apply Pillow's NEAREST transform in 16.16 fixed point, with the numbers of the kernels."""
    batch, channels, height, width = images.shape
    distinct = sorted(set(call.values))  # a batch that differs in its signs has two
    numbers = [numbers_of(call.op, value, height, width).ints for value in distinct]
    a, b, c, d, e, f = torch.tensor(numbers, device=images.device).T[:, :, None, None]
    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device).unsqueeze(1)
    column, row = (a * x + b * y + c) >> 16, (d * x + e * y + f) >> 16  # (distinct, H, W)
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    places = torch.where(inside, row * width + column, 0)

    which = torch.tensor([distinct.index(value) for value in call.values], device=images.device)
    places = places[which].flatten(1)[:, None].expand(batch, channels, -1)
    taken = images.flatten(2).gather(2, places).view_as(images)
    return taken.masked_fill(~inside[which][:, None], call.fill)
