"""Batch norm with fixed statistics, for detectors with small batches."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class FrozenBatchNorm2d(nn.Module):
    """A batch norm with constant statistics and affine parameters.

    All of them are buffers with the names of `nn.BatchNorm2d`, so that both load the same files.
    """

    weight: torch.Tensor
    bias: torch.Tensor
    running_mean: torch.Tensor
    running_var: torch.Tensor

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
    """Replace every batch norm of `model` by a frozen one with the same state.

    Needs trained weights: with initial statistics (mean 0, variance 1) the activations of a deep
    residual network grow without bound.
    """
    for name, child in model.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(model, name, FrozenBatchNorm2d(child))
        else:
            freeze_batch_norm(child)
    return model
