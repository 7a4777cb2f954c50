"""Kinds of images, boxes and masks, and how to come back to the kind that was given.

torchvision's `tv_tensors` are known by what they have (a canvas size and a format, or the name of
their class), so that torchvision need not be installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image

from ddas_gpu.data.decoding import to_rgb


def is_named(value: Any, *names: str) -> bool:
    """Return whether a value is a tensor of a class of this name, such as tv_tensors.Mask."""
    own = type(value)
    return isinstance(value, torch.Tensor) and any(c.__name__ in names for c in own.__mro__[:-1])


def is_image(value: Any) -> bool:
    """Return whether a value can be nothing else than an image."""
    return isinstance(value, Image.Image) or is_named(value, "Image")


def is_array(value: Any) -> bool:
    """Return whether a value is an array or a plain tensor, which may be an image."""
    return isinstance(value, np.ndarray) or type(value) is torch.Tensor


def has_pixels(array: Any) -> bool:
    """Return whether an array or a tensor can be an image: uint8 in three channels."""
    if isinstance(array, torch.Tensor):
        return array.dtype == torch.uint8 and array.ndim == 3 and array.shape[0] == 3
    return array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] == 3


def is_boxes(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and hasattr(value, "format") and has_canvas(value)


def has_canvas(value: Any) -> bool:
    return hasattr(value, "canvas_size")


def to_pixels(image: Any) -> Any:
    """Return uint8 (H, W, 3): an array, or a tensor if it is on a GPU."""
    if isinstance(image, Image.Image):
        return np.asarray(to_rgb(image))
    if not isinstance(image, (np.ndarray, torch.Tensor)):
        raise TypeError(
            "an image is a PIL image, a uint8 array (H, W, 3) or a uint8 tensor (3, H, W), "
            f"not {type(image).__name__}"
        )
    if not has_pixels(image):
        kind, shape = ("an array", "(H, W, 3)")
        if isinstance(image, torch.Tensor):
            kind, shape = ("a tensor", "(3, H, W)")
        advice = "put the policy before the normalisation"
        if str(image.dtype).endswith("uint8"):
            advice = "move its channels, or repeat that of a grey image three times"
        raise ValueError(
            f"{kind} must be uint8 of the shape {shape}, not {image.dtype} of "
            f"{tuple(image.shape)}: {advice}"
        )
    if isinstance(image, np.ndarray):
        return np.ascontiguousarray(image)
    pixels = image.as_subclass(torch.Tensor).permute(1, 2, 0).contiguous()
    return pixels if image.is_cuda else pixels.numpy()


def from_pixels(pixels: Any, like: Any) -> Any:
    """Return pixels as the kind of image that they came from."""
    if isinstance(like, Image.Image):
        return Image.fromarray(pixels)
    if isinstance(like, torch.Tensor):
        tensor = torch.from_numpy(pixels) if isinstance(pixels, np.ndarray) else pixels
        return wrapped(tensor.permute(2, 0, 1), like)
    return pixels


def require_size(target: Any, size: tuple[int, ...]) -> None:
    """Raise a ValueError for boxes or a mask of an image that is not (height, width)."""
    own = target.canvas_size if has_canvas(target) else target.shape[-2:]
    if target.numel() and tuple(own) != tuple(size):
        raise ValueError(
            f"{type(target).__name__} for an image of {tuple(own)} pixels came with one of "
            f"{tuple(size)}: resize both together"
        )


def wrapped(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a tensor as the class of another, with its attributes."""
    if type(like) is torch.Tensor:
        return tensor
    result = tensor.as_subclass(type(like))
    result.__dict__.update(like.__dict__)
    return result


def corners_of(boxes: Any) -> np.ndarray:
    """Return boxes as float64 (n, 4), x0 y0 x1 y1."""
    form = _format(boxes)
    if isinstance(boxes, torch.Tensor):
        boxes = boxes.detach().as_subclass(torch.Tensor).cpu().numpy()
    rows = np.array(boxes, np.float64)
    if rows.size == 0:
        rows = rows.reshape(0, 4)
    if rows.ndim != 2 or rows.shape[1] != 4:
        raise ValueError(f"boxes have the shape (n, 4), not {rows.shape}")
    first, second = rows[:, :2], rows[:, 2:]
    if form == "XYXY":
        return rows
    if form == "CXCYWH":
        first = first - second / 2
    return np.concatenate([first, first + second], axis=1)


def boxes_like(corners: np.ndarray, like: Any) -> Any:
    """Return x0 y0 x1 y1 in the format and kind of other boxes."""
    first, sides = corners[:, :2], corners[:, 2:] - corners[:, :2]
    rows = {
        "XYXY": corners,
        "XYWH": np.concatenate([first, sides], axis=1),
        "CXCYWH": np.concatenate([first + sides / 2, sides], axis=1),
    }[_format(like)]
    if isinstance(like, torch.Tensor):
        return wrapped(torch.from_numpy(rows).to(like.device, like.dtype), like)
    return rows.astype(np.asarray(like).dtype) if isinstance(like, np.ndarray) else rows.tolist()


def _format(boxes: Any) -> str:
    if not is_boxes(boxes):
        return "XYXY"
    name = getattr(boxes.format, "name", boxes.format)
    if name not in ("XYXY", "XYWH", "CXCYWH"):
        raise ValueError(f"boxes are XYXY, XYWH or CXCYWH, not {name}")
    return name
