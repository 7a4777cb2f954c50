"""How well a network does on the test images."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional as F


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    weights: dict[str, torch.Tensor] | None = None,
) -> dict[str, float]:
    """Mean loss and the shares of images whose class is the first guess, and among the first five.

    The network runs in evaluation mode, with `weights` instead of its own if given.
    """
    was_training = model.training
    model.eval()
    # float64 sums on the device: no waiting for each batch, no rounding over many.
    loss = first = five = count = 0
    for images, labels in batches:
        outputs = model(images) if weights is None else _with(model, weights, images)
        outputs = outputs.float()
        loss = loss + F.cross_entropy(outputs, labels, reduction="sum").double()
        guesses = outputs.topk(min(5, outputs.shape[1])).indices
        hits = guesses == labels[:, None]
        first, five = first + hits[:, 0].sum(), five + hits.sum()
        count += len(labels)
    model.train(was_training)
    return {
        "test_loss": float(loss) / count,
        "test_accuracy": int(first) / count,
        "test_top5_accuracy": int(five) / count,
    }


def _with(model: nn.Module, weights: dict[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
    return torch.func.functional_call(model, weights, (images,))
