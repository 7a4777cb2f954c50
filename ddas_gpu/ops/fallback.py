"""Policies on the torch back end, for machines where the kernels cannot run."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ddas_gpu.ops.arrays import Batch
from ddas_gpu.ops.kornia import apply_uint8
from ddas_gpu.ops.op_draws import Draws
from ddas_gpu.ops.records import Request, Step, one_size
from ddas_gpu.ops.table import find


def run(source: Batch, target: Batch, request: Request) -> None:
    """Run a request; images of one size that share an op are processed together."""
    if request.fill:
        raise ValueError(f"the torch back end fills with 0 only, not with {request.fill}")
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
            _run_stage(batch, request.steps, policies[chosen, stage], draws)
        for i, result in zip(chosen, batch, strict=True):
            results[i].copy_(result)


def _run_stage(
    batch: torch.Tensor, steps: tuple[Step, ...], choices: np.ndarray, draws: Draws
) -> None:
    centres = torch.from_numpy(draws.centre(*batch.shape[1:3]).astype(np.int64)).to(batch.device)
    for choice in np.unique(choices[choices >= 0]):
        name, argument = steps[choice]
        members = torch.from_numpy(np.flatnonzero(choices == choice)).to(batch.device)
        op = find(name)
        if op.signed:
            signs = np.where(draws.negative[choices == choice], -1.0, 1.0)
            argument = torch.from_numpy(argument * signs).to(batch.device)
        places = centres[members] if op.centred else None
        batch[members] = apply_uint8(batch[members], name, argument, places)


def _images(batch: Batch) -> list[torch.Tensor]:
    tensors = [_tensor(owner, batch.library) for owner in batch.owners]
    return list(tensors[0]) if one_size(batch.sizes) else tensors


def _tensor(array: Any, library: str) -> torch.Tensor:
    if library == "torch":
        return array
    if library == "cupy" or array.flags.writeable:
        return torch.as_tensor(array)
    return torch.tensor(array)  # a copy: torch cannot share read-only memory
