"""The interface: `apply` on floats, differentiable, and `apply_uint8` on bytes, forward only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ddas_gpu.ops import table
from ddas_gpu.ops.kornia import filters, places, tones  # noqa: F401 (they register the ops)
from ddas_gpu.ops.kornia.entries import Call, Entry, entry_of, find
from ddas_gpu.ops.kornia.levels import Levels, to_bytes, to_floats
from ddas_gpu.ops.records import check_size

tones.add_missing_point_ops()

INTERPOLATIONS = ("nearest", "bilinear")


def apply(
    images: Tensor,
    op: str,
    argument: float | Tensor | Sequence[float] | None = None,
    *,
    centres: Tensor | None = None,
    interpolation: str = "nearest",
) -> Tensor:
    """Apply one op to a batch of floats, differentiably.

    Args:
        images: (B, 3, H, W), float32 or float64, in [0, 1], on any device.
        op: the name of an op of `ddas_gpu.ops.table`.
        argument: None, a number, or a tensor, scalar or (B,), with or without a graph.
        centres: (B, 2) integers x, y: the middle of Cutout's hole in each image.
        interpolation: how the affine ops read between pixels. "nearest" is Pillow's, "bilinear"
            has a gradient in the argument.

    Returns:
        (B, 3, H, W), the images' dtype and device: Pillow's result before its last rounding.

    >>> images = torch.full((1, 3, 2, 2), 0.5)
    >>> factor = torch.tensor(1.5, requires_grad=True)
    >>> brighter = apply(images, "Brightness", factor)
    >>> torch.autograd.grad(brighter.mean(), factor)[0].round(decimals=4)
    tensor(0.5000)
    """
    entry = find(op)
    _check_images(images, (torch.float32, torch.float64), "(B, 3, H, W)", channels=1)
    if interpolation not in INTERPOLATIONS:
        raise ValueError(
            f"interpolation {interpolation!r} is unknown; there are: {', '.join(INTERPOLATIONS)}"
        )
    call = _prepare(entry, images, argument, centres, interpolation, fractions=True)
    if not len(images):
        return images.clone()
    if entry.moves:
        return entry.function(images, call)
    return to_floats(entry.function(Levels.of_floats(images), call), images.dtype)


@torch.no_grad()
def apply_uint8(
    images: Tensor,
    op: str,
    argument: float | Tensor | Sequence[float] | None = None,
    centres: Tensor | None = None,
) -> Tensor:
    """Apply one op to a batch of bytes: (B, H, W, 3) uint8 -> the same, the bytes of Pillow.

    For machines on which the kernels cannot run; arguments as in `apply`.
    """
    return run_op(images, table.find(op), argument, centres)


@torch.no_grad()
def run_op(
    images: Tensor,
    op: table.Op,
    argument: float | Tensor | Sequence[float] | None = None,
    centres: Tensor | None = None,
    fill: int = 0,
) -> Tensor:
    """Apply an op, or a variant of one for boxes, as `apply_uint8` does.

    fill: the value of pixels from outside the image and in Cutout's hole.
    """
    entry = entry_of(op)
    _check_images(images, (torch.uint8,), "(B, H, W, 3)", channels=3)
    pixels = images.permute(0, 3, 1, 2)
    call = _prepare(entry, pixels, argument, centres, "nearest", fractions=False)
    call = replace(call, fill=fill)
    if not len(images):
        return images.clone()
    if entry.moves:
        changed = entry.function(pixels, call)
    else:
        changed = to_bytes(entry.function(Levels.of_bytes(pixels), call), rounds=entry.rounds)
    return changed.permute(0, 2, 3, 1).contiguous()


def _check_images(images: object, dtypes: tuple, layout: str, *, channels: int) -> None:
    names = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a torch tensor of {names}, not {type(images).__name__}")
    if images.dtype not in dtypes:
        raise TypeError(f"images must be {names}, not {images.dtype}")
    shape = tuple(images.shape)
    if len(shape) != 4 or shape[channels] != 3 or 0 in shape[1:]:
        raise ValueError(f"images must be {layout} and not empty, not of shape {shape}")


def _prepare(
    entry: Entry,
    images: Tensor,  # (B, 3, H, W)
    argument: Any,
    centres: Tensor | None,
    interpolation: str,
    *,
    fractions: bool,
) -> Call:
    """Return the checked parameters of an op."""
    op, (batch, _, height, width) = entry.op, images.shape
    check_size(op, height, width)
    values, tensor = _argument(entry, images, argument, fractions)
    asked = tensor is not None and tensor.requires_grad and torch.is_grad_enabled()
    if asked and not entry.has_argument_gradient(interpolation):
        raise ValueError(
            f"{op.name} with {interpolation} interpolation has no gradient in its argument; "
            f"its gradient is: {entry.argument}. Pass argument.detach() to go without"
        )
    return Call(op, values, tensor, _centres(op, batch, centres, images.device), interpolation)


def _argument(
    entry: Entry, images: Tensor, argument: Any, fractions: bool
) -> tuple[tuple[float, ...], Tensor | None]:
    """Return the argument as checked values on the host and as a (1,) or (B,) tensor."""
    if argument is None or entry.op.accepts is None:
        entry.op.check(argument)
        return (), None
    each = argument.tolist() if hasattr(argument, "tolist") else argument
    if not isinstance(each, (list, tuple)):
        each = [each]
    elif len(each) != len(images):
        raise ValueError(
            f"{entry.op.name} takes one argument, or one for each of {len(images)} images, "
            f"not {len(each)}"
        )
    checked = (entry.check(value, fractions=fractions) for value in each)
    values = tuple(value for value in checked if value is not None)
    dtype = images.dtype if images.is_floating_point() else torch.float32
    if isinstance(argument, Tensor):
        return values, argument.to(images.device, dtype).reshape(-1)
    return values, torch.tensor(values, device=images.device, dtype=dtype)


def _centres(op: Any, batch: int, centres: Any, device: torch.device) -> Tensor | None:
    if not op.centred:
        if centres is not None:
            raise ValueError(f"{op.name} takes no centres")
        return None
    if centres is None:
        raise ValueError(f"{op.name} takes centres: ({batch}, 2) integers x, y")
    centres = torch.as_tensor(centres, device=device)
    if centres.is_floating_point() or tuple(centres.shape) != (batch, 2):
        raise ValueError(
            f"centres must be ({batch}, 2) integers x, y, "
            f"not {tuple(centres.shape)} of {centres.dtype}"
        )
    return centres.to(torch.int64)
