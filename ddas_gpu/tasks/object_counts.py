"""What a detector's loss is divided by when its batch is spread over several ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ddas_gpu.distributed.ranks import Ranks

Targets = dict[str, torch.Tensor]


def counted_on_all_ranks(targets: Sequence[Targets], ranks: Ranks) -> list[Targets]:
    """Targets with "divisor", a rank's even part of the number of object anchors on all ranks.

    The loss is a sum over the batch divided by that number. With it the mean of the ranks' losses
    is the loss of the whole batch; with each rank's own number, which varies a lot, it is not.
    """
    if ranks.count == 1:
        return list(targets)
    counts = torch.stack([(each["classes"] >= 0).sum() for each in targets]).double()
    divisors = ranks.sum(counts).clamp(min=1) / ranks.count
    return [{**each, "divisor": divisor} for each, divisor in zip(targets, divisors, strict=True)]
