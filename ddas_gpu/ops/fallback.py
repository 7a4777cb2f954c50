"""Policies on the torch back end, for machines where the kernels cannot run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ddas_gpu.ops.arrays import Batch
from ddas_gpu.ops.kornia.calls import run_op
from ddas_gpu.ops.records import Request, Step, one_size
from ddas_gpu.ops.table import find
from ddas_gpu.streams import Draws

if TYPE_CHECKING:
    from ddas_gpu.ops.box_policies import BoxStep


def run(source: Batch, target: Batch, request: Request) -> None:
    """Run a request; images of one size that share an op are processed together."""
    images, results = _images(source), _images(target)
    policies, negative, position = (
        np.broadcast_to(field, (len(source), *field.shape[1:]))
        for field in (request.policies, *request.draws)
    )
    sizes = np.broadcast_to(np.array(source.sizes).reshape(-1, 2), (len(source), 2))
    for size in np.unique(sizes, axis=0):
        chosen = np.flatnonzero((sizes == size).all(axis=1))
        # The versions of a batch read the same image several times.
        batch = torch.stack([images[i % len(images)] for i in chosen])
        for stage in range(policies.shape[1]):
            draws = Draws(negative[chosen, stage], position[chosen, stage])
            _run_stage(batch, request.steps, policies[chosen, stage], draws, request.fill)
        for i, result in zip(chosen, batch, strict=True):
            results[i].copy_(result)


def _run_stage(
    batch: torch.Tensor,
    steps: tuple[Step, ...],
    choices: np.ndarray,
    draws: Draws,
    fill: int,
) -> None:
    centres = torch.from_numpy(draws.centre(*batch.shape[1:3]).astype(np.int64)).to(batch.device)
    for choice in np.unique(choices[choices >= 0]):
        name, argument = steps[choice]
        members = torch.from_numpy(np.flatnonzero(choices == choice)).to(batch.device)
        op = find(name)
        if op.signed:
            argument = np.where(draws.negative[choices == choice], -argument, argument).tolist()
        places = centres[members] if op.centred else None
        batch[members] = run_op(batch[members], op, argument, places, fill)


def run_steps(source: Batch, target: Batch, batch: list[list[BoxStep]], fill: int) -> None:
    """Run the steps of `plan_boxes`, image by image."""
    for image, result, steps in zip(_images(source), _images(target), batch, strict=True):
        result.copy_(image)
        for op, argument, position, region in steps:
            height, width = image.shape[:2]
            left, top, width, height = region or (0, 0, width, height)
            part = result[top : top + height, left : left + width]
            centre = None
            if op.centred:
                drawn = Draws(np.zeros(1, bool), position[None])
                centre = torch.from_numpy(drawn.centre(height, width).astype(np.int64))
            part.copy_(run_op(part[None], op, argument, centre, fill)[0])


def write_inputs(
    images: torch.Tensor | list[torch.Tensor],
    out: torch.Tensor,
    table: torch.Tensor,
    holes: np.ndarray,
) -> None:
    """Write images (H, W, 3) as the input of a model, out (B, H', W', 3), with 0 around them.

    table: (3, 256), the value of each byte in each channel. holes: (B, 4), what becomes 0: left,
    top, right, bottom.
    """
    out.zero_()
    table, channel = table.to(out.device), torch.arange(3, device=out.device)
    for place, image, (left, top, right, bottom) in zip(
        out, images, holes.clip(0).tolist(), strict=True
    ):
        height, width = image.shape[:2]
        place[:height, :width] = table[channel, image.long()]
        place[top:bottom, left:right] = 0


def _images(batch: Batch) -> list[torch.Tensor]:
    tensors = [_tensor(owner, batch.library) for owner in batch.owners]
    return list(tensors[0]) if one_size(batch.sizes) else tensors


def _tensor(array: Any, library: str) -> torch.Tensor:
    if library == "torch":
        return array
    if library == "cupy" or array.flags.writeable:
        return torch.as_tensor(array)
    return torch.tensor(array)  # a copy: torch cannot share read-only memory
