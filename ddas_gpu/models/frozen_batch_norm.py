"""Batch norm with fixed statistics: for detectors, whose batches are small."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class FrozenBatchNorm2d(nn.Module):
    """A batch norm that neither learns nor looks at its batch.

    Scale, shift, mean and variance are buffers with the names `nn.BatchNorm2d` has, so that a
    file of weights serves both.
    """

    def __init__(self, norm: nn.BatchNorm2d):
        super().__init__()
        self.eps = norm.eps
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, getattr(norm, name).detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


def freeze_batch_norm(model: nn.Module) -> nn.Module:
    """Put a frozen batch norm, with the same numbers, in the place of every one of `model`.

    Only sensible with trained weights: fresh statistics (mean 0, variance 1) are not those of any
    image, and a deep residual network then grows without bound.
    """
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(model, name, FrozenBatchNorm2d(child))
        else:
            freeze_batch_norm(child)
    return model
