"""The input of a model in one pass: the ops, then normalise, Cutout's holes, padding and layout.

A normalised pixel depends on its byte and channel only, so the kernels look it up in a table of
3 × 256 words that torch computes. Hence the result is that of torch's own arithmetic, bit by bit,
in any dtype and on any device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch

from ddas_gpu.ops import arrays, backends, cuda, fallback
from ddas_gpu.ops.arrays import Batch
from ddas_gpu.ops.box_policies import BoxStep, chains_of
from ddas_gpu.ops.records import (
    Chains,
    Inputs,
    Records,
    Request,
    chains_for,
    no_chains,
    pictures_of_source,
)

WORDS = {4: torch.int32, 2: torch.int16}  # numpy has no bfloat16


class Format(Protocol):
    """What a model wants."""

    @property
    def mean(self) -> tuple[float, ...]:
        """Of each channel, in levels."""
        ...

    @property
    def std(self) -> tuple[float, ...]: ...

    @property
    def layout(self) -> str:
        """ "NCHW" or "NHWC"."""
        ...

    @property
    def dtype(self) -> str:
        """ "float32", "float16" or "bfloat16"."""
        ...


def inputs_of(
    images: torch.Tensor,
    wanted: Format,
    request: Request | None = None,
    *,
    holes: np.ndarray | None = None,
    side: int = 0,
    backend: str = "auto",
) -> torch.Tensor:
    """Return the images after the ops of `request`, normalised: (B, 3, H, W) or (B, H, W, 3).

    images: uint8 (B, H, W, 3). request: of `SearchSpace.request`. holes: (B, 2), the first row and
    column of a square of `side` pixels that becomes 0; it may lie partly outside.
    """
    source = arrays.read(images)
    size = (images.shape[1], images.shape[2])
    out = empty_inputs(images, len(images), size, wanted)
    rectangles = _rectangles(holes, side, len(images))
    chosen = backends.choose_backend(backend, source.device[0])
    if chosen == "kornia":
        changed = images
        if request is not None:
            changed = torch.empty_like(images, memory_format=torch.contiguous_format)
            fallback.run(source, arrays.read(changed, writable=True), request)
        _write(changed, out, wanted, rectangles)
        return out
    chains = no_chains(len(source))
    if request is not None:
        chains = chains_for(request, source.sizes, len(source))
    _run(chosen, source, chains, out, wanted, rectangles)
    return out


def padded_inputs(
    images: Sequence[torch.Tensor],
    wanted: Format,
    size: tuple[int, int],
    steps: list[list[BoxStep]] | None = None,
    fill: int = 0,
    *,
    backend: str = "auto",
) -> torch.Tensor:
    """Return images of any sizes after the steps of `plan_boxes`, normalised, with 0 around.

    Each image is in the upper left corner of its (height, width) = `size`.
    """
    images = list(images)
    source = arrays.read(images)
    out = empty_inputs(images[0], len(images), size, wanted)
    holes = _rectangles(None, 0, len(images))
    chosen = backends.choose_backend(backend, source.device[0])
    if chosen == "kornia":
        changed = images
        if steps is not None:
            changed = [torch.empty_like(image) for image in images]
            fallback.run_steps(source, arrays.read(changed, writable=True), steps, fill)
        _write(changed, out, wanted, holes)
        return out
    chains = no_chains(len(source))
    if steps is not None:
        chains = chains_of(steps, source.size_list(), fill)
    _run(chosen, source, chains, out, wanted, holes)
    return out


def empty_inputs(
    like: torch.Tensor, count: int, size: tuple[int, int], wanted: Format
) -> torch.Tensor:
    """Return memory for the result; NHWC is a tensor of that shape."""
    shape = (count, 3, *size) if wanted.layout == "NCHW" else (count, *size, 3)
    return torch.empty(shape, dtype=getattr(torch, wanted.dtype), device=like.device)


def _run(
    backend: str,
    source: Batch,
    chains: Chains,
    out: torch.Tensor,
    wanted: Format,
    holes: np.ndarray,
) -> None:
    """Run the kernels."""
    planar = wanted.layout == "NCHW"
    height, width = out.shape[2:] if planar else out.shape[1:3]
    table = table_of(wanted.mean, wanted.std, wanted.dtype)
    inputs = Inputs(
        holes=Records(holes),
        table=Records(table.view(WORDS[table.element_size()]).numpy()),
        out=out.data_ptr(),
        height=height,
        width=width,
        planar=planar,
        word_bytes=out.element_size(),
    )
    pictures = pictures_of_source(source.layout)
    if backend == "cpu":
        backends.run_inputs(pictures, chains, source.address, inputs)
    else:
        cuda.run_inputs(pictures, chains, source, inputs)


def _write(
    images: torch.Tensor | list[torch.Tensor],
    out: torch.Tensor,
    wanted: Format,
    holes: np.ndarray,
) -> None:
    """Do without the kernels."""
    table = table_of(wanted.mean, wanted.std, wanted.dtype)
    channels_last = out.movedim(1, -1) if wanted.layout == "NCHW" else out
    fallback.write_inputs(images, channels_last, table, holes)


def _rectangles(corners: np.ndarray | None, side: int, count: int) -> np.ndarray:
    """Return the holes as int32 (B, 4): left, top, right, bottom; all 0 for none."""
    holes = np.zeros((count, 4), np.int32)
    if corners is not None:
        holes[:, :2] = np.asarray(corners)[:, ::-1]
        holes[:, 2:] = holes[:, :2] + side
    return holes


@lru_cache(maxsize=64)
def table_of(mean: tuple[float, ...], std: tuple[float, ...], dtype: str) -> torch.Tensor:
    """Return the normalised value of every byte in every channel: (3, 256)."""
    levels = torch.arange(256, dtype=torch.float32)
    shift, scale = (torch.tensor(values, dtype=torch.float32)[:, None] for values in (mean, std))
    return ((levels - shift) / scale).to(getattr(torch, dtype))
