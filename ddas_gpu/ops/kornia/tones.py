"""Ops that compute a pixel's new value from the pixel and at most statistics of its image.

A point op of the table without a function here runs by Pillow's own look-up table: see
`by_pillow_table`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ddas_gpu.ops.kornia.entries import BANK, EXACT, STRAIGHT_THROUGH, Call, changes
from ddas_gpu.ops.kornia.levels import WHITE, Levels, blend, round_half_up
from ddas_gpu.ops.table import OPS, Argument, gains

# Pillow's weights of R, G and B. In float32, too, products and sums of bytes with them are exact.
LUMINANCE = (19595 / 65536, 38470 / 65536, 7471 / 65536)


@changes()
def AutoContrast(levels: Levels, call: Call) -> Tensor:
    """through the two extremes of the channel, too"""
    values = levels.values.flatten(2)
    low, high = values.amin(2, keepdim=True), values.amax(2, keepdim=True)
    if levels.are_bytes:
        # Pillow makes a table in double precision, and its truncation shows the difference.
        wide = torch.float32 if values.device.type == "mps" else torch.float64
        ramp = torch.arange(256, device=values.device, dtype=wide)
        return levels.look_up(stretched(ramp, low.to(wide), high.to(wide)).floor())
    return stretched(values, low, high).view(levels.values.shape)


def stretched(levels: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """`levels` with [low, high] mapped to [0, 255]: `ImageOps.autocontrast`'s arithmetic."""
    flat = high - low < 0.5
    # Not WHITE / tensor: torch makes that WHITE times a rounded reciprocal.
    scale = torch.full_like(low, WHITE) / torch.where(flat, WHITE, high - low)
    return levels * scale + torch.where(flat, 0, -low * scale)


@changes(image=STRAIGHT_THROUGH)
def Equalize(levels: Levels, call: Call) -> Tensor:
    """as if it were the identity"""
    return levels.straight_through(levels.look_up(equalizing_tables(histograms(levels.nearest))))


def histograms(pixels: Tensor) -> Tensor:
    """(B, C, H, W) bytes as floats -> (B, C, 256) counts"""
    batch, channels = pixels.shape[:2]
    rows = torch.arange(batch * channels, device=pixels.device).view(batch, channels, 1, 1)
    places = pixels.to(torch.int64).clamp(0, WHITE) + 256 * rows
    counts = torch.bincount(places.flatten(), minlength=256 * batch * channels)
    return counts.view(batch, channels, 256)


def equalizing_tables(counts: Tensor) -> Tensor:
    """`ImageOps.equalize`'s look-up tables from histograms, both (B, C, 256)."""
    ramp = torch.arange(256, device=counts.device)
    last = torch.where(counts > 0, ramp, 0).amax(2, keepdim=True)
    step = (counts.sum(2, keepdim=True) - counts.gather(2, last)) // WHITE
    below = counts.cumsum(2) - counts
    tables = (step // 2 + below) // step.clamp(min=1)
    # Small images overshoot white. Step 0 covers channels of one value, too.
    return torch.where(step == 0, ramp, tables.clamp(max=WHITE))


@changes()
def Invert(levels: Levels, call: Call) -> Tensor:
    """-1"""
    from kornia.enhance import invert

    return invert(levels.values, levels.values.new_tensor(WHITE))


@changes(argument=STRAIGHT_THROUGH)
def Solarize(levels: Levels, call: Call) -> Tensor:
    """in the threshold: (2 pixel - 1) / 255 per level"""
    threshold = call.argument
    inverted = (levels.nearest >= threshold).to(levels.values.dtype)
    # Straight-through: the step from 0 to 1 counts as a slope of 1 over the range of the levels.
    inverted = inverted - (threshold - threshold.detach()) / WHITE
    return levels.values + inverted * (WHITE - 2 * levels.values)


@changes(argument=EXACT)
def SolarizeAdd(levels: Levels, call: Call) -> Tensor:
    """where dark; 0 where clipped"""
    lifted = (levels.values + call.argument).clamp(max=WHITE)
    return torch.where(levels.nearest < 128, lifted, levels.values)


@changes(argument=EXACT)
def Color(levels: Levels, call: Call) -> Tensor:
    """0 where clipped"""
    return blend(levels.rounded(rounded_luminance, luminance), levels.values, call.argument)


@changes(argument=EXACT)
def Contrast(levels: Levels, call: Call) -> Tensor:
    """through the mean, too; 0 where clipped"""

    def rounded_mean(pixels: Tensor) -> Tensor:
        grey = rounded_luminance(pixels)
        count = grey[0].numel()
        total = grey.sum((1, 2, 3), keepdim=True, dtype=torch.int64)
        return ((2 * total + count) // (2 * count)).to(pixels.dtype)

    def mean(levels: Tensor) -> Tensor:
        return luminance(levels).mean((1, 2, 3), keepdim=True)

    return blend(levels.rounded(rounded_mean, mean), levels.values, call.argument)


@changes(argument=EXACT)
def Brightness(levels: Levels, call: Call) -> Tensor:
    """0 where clipped"""
    return levels.values * call.argument


@changes(argument=EXACT)
def Lighten(levels: Levels, call: Call) -> Tensor:
    return blend(levels.values.new_tensor(WHITE), levels.values, call.argument)


@changes(argument=STRAIGHT_THROUGH, rounds=True)
def Warmth(levels: Levels, call: Call) -> Tensor:
    """0 where clipped"""
    exact = torch.cat([1 + call.argument, torch.ones_like(call.argument), 1 - call.argument], 1)
    rounded = torch.tensor([gains(value) for value in call.values], device=exact.device)
    factors = exact + (rounded.to(exact)[:, :, None, None] / 128 - exact).detach()
    return levels.values * factors


def luminance(levels: Tensor) -> Tensor:
    """(B, 3, H, W) -> (B, 1, H, W)"""
    from kornia.color import rgb_to_grayscale

    return rgb_to_grayscale(levels, levels.new_tensor(LUMINANCE))


def rounded_luminance(pixels: Tensor) -> Tensor:
    return round_half_up(luminance(pixels))


def by_pillow_table(levels: Levels, call: Call) -> Tensor:
    """as if it were the identity"""
    tables = [pillow_table(call.op.name, value) for value in call.values or (None,)]
    batch, channels = levels.values.shape[:2]
    each = torch.tensor(np.stack(tables), device=levels.values.device)[:, None]  # (1 or B, 1, 256)
    return levels.straight_through(levels.look_up(each.expand(batch, channels, 256)))


@lru_cache(maxsize=1024)
def pillow_table(name: str, argument: Argument) -> np.ndarray:
    """Return what a point op makes of each byte value: uint8 (256,)."""
    ramp = np.arange(256, dtype=np.uint8)[None, :, None].repeat(3, axis=2)
    arguments = () if argument is None else (argument,)
    return np.asarray(OPS[name].pillow(Image.fromarray(ramp), *arguments))[0, :, 0]


def add_missing_point_ops() -> None:
    """Register the point ops of the table that have no function of their own."""
    for op in OPS.values():
        if op.is_point and op.name not in BANK:
            changes(image=STRAIGHT_THROUGH, name=op.name)(by_pillow_table)
