"""Batch norm with the statistics of the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed, nn


class SyncedBatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d` over all ranks, which must have batches of the same size.

    torch's SyncBatchNorm runs only on GPUs. This one is also exact: it all-reduces the mean, then
    the variance around it. Both all-reduces are differentiable.
    """

    running_mean: torch.Tensor  # statistics are always tracked here
    running_var: torch.Tensor
    num_batches_tracked: torch.Tensor
    momentum: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(x)
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        mean = mean_over_ranks(wide.mean((0, 2, 3)))
        centred = wide - mean[:, None, None]
        variance = mean_over_ranks(centred.square().mean((0, 2, 3)))
        self._track(mean.detach(), variance.detach(), x.numel() // x.shape[1])
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (centred * scale[:, None, None] + self.bias[:, None, None]).to(x.dtype)

    @torch.no_grad()
    def _track(self, mean: torch.Tensor, variance: torch.Tensor, own_count: int) -> None:
        self.num_batches_tracked.add_(1)
        count = own_count * distributed.get_world_size()
        self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
        unbiased = variance * (count / (count - 1))
        self.running_var.lerp_(unbiased.to(self.running_var), self.momentum)


def mean_over_ranks(values: torch.Tensor) -> torch.Tensor:
    return _Sum.apply(values) / distributed.get_world_size()


class _Sum(torch.autograd.Function):
    """All-reduce sum. Every rank's loss depends on the input, so the backward is a sum as well."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        total = values.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> torch.Tensor:
        return _Sum.apply(cotangent)


def sync_batch_norm(model: nn.Module) -> nn.Module:
    """Replace every batch norm of `model` by a synced one with the same state."""
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm2d):
            synced = SyncedBatchNorm2d(child.num_features, child.eps, child.momentum)
            synced.to(child.weight.device, child.weight.dtype)
            synced.load_state_dict(child.state_dict())
            setattr(model, name, synced)
        else:
            sync_batch_norm(child)
    return model
