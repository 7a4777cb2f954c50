"""How well a network does on the test images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ddas_gpu.distributed.ranks import ALONE, Ranks
from ddas_gpu.gradients.layer_rules import call_with


@contextmanager
def testing(
    model: nn.Module, weights: dict[str, torch.Tensor] | None = None
) -> Iterator[Callable[[torch.Tensor], Any]]:
    """Yield the network in evaluation mode, with `weights` instead of its own if given.

    Restore its mode afterwards.
    """
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            if weights is None:
                yield model
            else:
                yield lambda images: call_with(model, weights, images)
    finally:
        model.train(was_training)


def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    weights: dict[str, torch.Tensor] | None = None,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Return the mean loss, the accuracy and the top-5 accuracy.

    The network runs in evaluation mode, with `weights` instead of its own if given. Every rank has
    batches of its own; the numbers are means over all ranks' images.
    """
    # float64 sums on the device: no waiting for each batch, no rounding over many.
    sums = torch.zeros(4, dtype=torch.float64)  # loss, first guesses, among five, images
    with testing(model, weights) as outputs_of:
        for images, labels in batches:
            outputs = outputs_of(images).float()
            loss = F.cross_entropy(outputs, labels, reduction="sum")
            guesses = outputs.topk(min(5, outputs.shape[1])).indices
            hits = guesses == labels[:, None]
            count = torch.full_like(loss, len(labels))
            batch = torch.stack([loss, hits[:, 0].sum(), hits.sum(), count])
            sums = sums.to(batch.device) + batch
    loss, first, five, count = ranks.sum(sums).tolist()
    return {
        "test_loss": loss / count,
        "test_accuracy": first / count,
        "test_top5_accuracy": five / count,
    }
