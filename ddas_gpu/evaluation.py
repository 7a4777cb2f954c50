"""How well a network does on the test images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


@contextmanager
def testing(
    model: nn.Module, weights: dict[str, torch.Tensor] | None = None
) -> Iterator[Callable[[torch.Tensor], Any]]:
    """The network as it is tested: in evaluation mode, with `weights` instead of its own if given.

    Afterwards it is as it was before.
    """
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            if weights is None:
                yield model
            else:
                yield lambda images: torch.func.functional_call(model, weights, (images,))
    finally:
        model.train(was_training)


def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    weights: dict[str, torch.Tensor] | None = None,
) -> dict[str, float]:
    """Mean loss and the shares of images whose class is the first guess, and among the first five.

    The network runs in evaluation mode, with `weights` instead of its own if given.
    """
    # float64 sums on the device: no waiting for each batch, no rounding over many.
    loss = first = five = count = 0
    with testing(model, weights) as outputs_of:
        for images, labels in batches:
            outputs = outputs_of(images).float()
            loss = loss + F.cross_entropy(outputs, labels, reduction="sum").double()
            guesses = outputs.topk(min(5, outputs.shape[1])).indices
            hits = guesses == labels[:, None]
            first, five = first + hits[:, 0].sum(), five + hits.sum()
            count += len(labels)
    return {
        "test_loss": float(loss) / count,
        "test_accuracy": int(first) / count,
        "test_top5_accuracy": int(five) / count,
    }
