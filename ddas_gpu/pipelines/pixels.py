"""The standard transform on the host: one implementation of each of its parts.

Before the policy, on uint8 arrays: pad and shift, a random part, the middle part. After the
policy, on tensors of any device: normalise, Cutout, padding to a common size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ddas_gpu import streams
from ddas_gpu.data.decoding import resized
from ddas_gpu.data.sources import Pixels

RESIZED_FROM = 256 / 224  # evaluation sees the middle 224 of 256
MULTIPLE = 32  # sides of padded batches are multiples of this, so that few sizes occur
CHUNK = 1024  # images per step of the statistics, which bounds their memory

Channels = Sequence[float] | np.ndarray  # a number per channel


def pad_shift_flip(
    images: np.ndarray, crops: np.ndarray, flips: np.ndarray, padding: int
) -> np.ndarray:
    """Shift images (B, H, W, 3) into black and mirror some of them.

    crops: as drawn by `streams.crops_and_flips`; flips: (B,) bool.
    """
    count, height, width, channels = images.shape
    rows, columns = height + 2 * padding, width + 2 * padding
    padded = np.zeros((count, rows, columns, channels), np.uint8)
    padded[:, padding : padding + height, padding : padding + width] = images
    image, row, pixel, channel = padded.strides
    places = 2 * padding + 1
    windows = np.lib.stride_tricks.as_strided(
        padded,
        (count, places, places, height, width, channels),
        (image, row, pixel, row, pixel, channel),
        writeable=False,
    )
    down, across = streams.shifts(crops, padding).T
    shifted = windows[np.arange(count), down, across]
    shifted[flips] = shifted[flips, :, ::-1]
    return shifted


def random_parts(
    images: Sequence[np.ndarray], crops: np.ndarray, flips: np.ndarray, size: tuple[int, int]
) -> np.ndarray:
    """Scale a random part of each image to `size` and mirror some of them: (B, H, W, 3)."""
    corners, sizes = streams.boxes(crops, np.array([image.shape[:2] for image in images]))
    ends = corners + sizes
    pixels = np.stack(
        [
            resized(image, size, (*corner[::-1], *end[::-1]))
            for image, corner, end in zip(images, corners, ends, strict=True)
        ]
    )
    pixels[flips] = pixels[flips, :, ::-1]
    return pixels


def middle_part(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the part that DALI's graph evaluates on, which begins at a whole pixel."""
    around = [round(side * RESIZED_FROM) for side in size]
    scale = min(side / wanted for side, wanted in zip(image.shape, around, strict=False))
    height, width = (round(side / scale) for side in image.shape[:2])
    top, left = (height - size[0] + 1) // 2, (width - size[1] + 1) // 2
    return resized(image, (height, width))[top : top + size[0], left : left + size[1]]


def moved(array: np.ndarray, device: torch.device | str) -> torch.Tensor:
    """Return an array as a tensor on `device`. The caller does not wait for the copy to a GPU."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)  # torch keeps the pinned memory


def normalise(images: torch.Tensor, mean: Channels, std: Channels) -> torch.Tensor:
    """Return uint8 (…, H, W, 3) as float32 (…, 3, H, W), with the channels last in memory."""
    shift, scale = (
        torch.tensor(values, dtype=torch.float32, device=images.device) for values in (mean, std)
    )
    return ((images.float() - shift) / scale).movedim(-1, -3)


def cut_holes(inputs: torch.Tensor, corners: np.ndarray, side: int) -> None:
    """Set a square to 0, the mean colour, in inputs (…, B, 3, H, W), in place.

    corners: (B, 2), the first row and column of each hole; it may lie partly outside.
    """
    first = torch.from_numpy(np.ascontiguousarray(corners)).to(inputs.device).long()
    inside = []
    for axis, length in enumerate(inputs.shape[-2:]):
        place = torch.arange(length, device=inputs.device) - first[:, axis, None]
        inside.append((place >= 0) & (place < side))
    rows, columns = inside
    inputs.masked_fill_((rows[:, :, None] & columns[:, None, :])[:, None], 0.0)


def common_size(sizes: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the height and width of a batch that holds images of these sizes."""
    sides = np.array(sizes).max(0)
    height, width = (-(-sides // MULTIPLE) * MULTIPLE).tolist()
    return height, width


def normalise_and_pad(
    images: Sequence[np.ndarray | torch.Tensor],
    mean: Sequence[float],
    std: Sequence[float],
    device: torch.device | str = "cpu",
) -> torch.Tensor:
    """Return uint8 (H, W, 3) of any sizes as float32 (B, 3, H, W), padded with 0.

    The padding is at the right and below, so boxes stay where they are.
    """
    tensors = [torch.as_tensor(image).to(device) for image in images]
    height, width = common_size([(image.shape[0], image.shape[1]) for image in tensors])
    inputs = torch.zeros(len(tensors), height, width, 3, device=device)
    for place, image in zip(inputs, tensors, strict=True):
        normalised = normalise(image, mean, std).movedim(0, -1)
        place[: image.shape[0], : image.shape[1]] = normalised
    return inputs.movedim(-1, 1)


def channel_statistics(images: Pixels) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation of each channel, (3,) each, in levels."""
    parts = (
        np.array_split(images, -(-len(images) // CHUNK))
        if isinstance(images, np.ndarray)
        else images
    )
    flat = [np.asarray(part).reshape(-1, 3) for part in parts]
    count = sum(len(pixels) for pixels in flat)
    mean = sum(pixels.sum(0, dtype=np.float64) for pixels in flat) / count
    square = sum((pixels.astype(np.float64) ** 2).sum(0) for pixels in flat) / count
    # A channel of one value has no deviation; one grey level keeps the division harmless.
    return mean, np.maximum(np.sqrt(np.maximum(square - mean**2, 0)), 1.0)
