"""Batch norm over the images of all ranks, as if they were one batch."""

from __future__ import annotations

import torch
from torch import distributed, nn


class SyncedBatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d` on several ranks, each of which has equally many images.

    torch's SyncBatchNorm is for GPUs only, and this one is exact: first the mean travels, then the
    variance around it. Both are differentiable, so that gradients take the way back.
    """

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
    """Over all ranks. What one rank puts in, every rank's loss depends on: so the way back is a
    sum, too."""

    @staticmethod
    def forward(ctx, values):
        total = values.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, cotangent):
        return _Sum.apply(cotangent)


def sync_batch_norm(model: nn.Module) -> nn.Module:
    """Put a synced batch norm, with the same numbers, in the place of every one of `model`."""
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm2d):
            like = {"device": child.weight.device, "dtype": child.weight.dtype}
            synced = SyncedBatchNorm2d(child.num_features, child.eps, child.momentum, **like)
            synced.load_state_dict(child.state_dict())
            setattr(model, name, synced)
        else:
            sync_batch_norm(child)
    return model
