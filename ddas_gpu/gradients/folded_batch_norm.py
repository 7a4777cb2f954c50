"""Batch norm on versions that vmap has folded into one batch.

vmap's own rule moves the versions into the channels, which copies the whole batch several times
and applies scale and shift apart; with it a folded pass loses what it gains elsewhere. Here every
version goes through `F.batch_norm` by itself, on its own part of the memory.
"""

from typing import Any

import torch
from torch.nn import functional as F


def folded_batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`F.batch_norm`, called inside vmap."""
    tensors = (input, running_mean, running_var, weight, bias)
    return _FoldedBatchNorm.apply(*tensors, training, momentum, eps)


class _FoldedBatchNorm(torch.autograd.Function):
    """An autograd function for the sake of its vmap rule, where all versions can be seen."""

    @staticmethod
    def forward(*arguments: Any) -> torch.Tensor:
        return F.batch_norm(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> tuple[torch.Tensor, int]:
        def rows(tensor: Any, axis: int | None) -> tuple[Any, ...]:
            """One entry a version; running statistics are views, written to in place."""
            return (tensor,) * info.batch_size if axis is None else tensor.unbind(axis)

        by_version = zip(*map(rows, arguments, in_dims), strict=True)
        return torch.stack([F.batch_norm(*row) for row in by_version]), 0
