"""All-reduce of a gradient in buckets, overlapped with the backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import distributed

from ddas_gpu.distributed.ranks import Ranks, in_touch

# Small enough for the first all-reduce to start early, large enough to amortise the latency of
# one: the default of DistributedDataParallel.
BUCKET_BYTES = 25 << 20


class MeanGradient:
    """Collects a gradient parameter by parameter, and returns its mean over the ranks.

    parameters   {name: tensor like the gradient}, in the order in which they are expected.

    A bucket is all-reduced asynchronously once it is complete and the buckets before it have been
    started, so that all ranks issue the same collectives in the same order. Only `result` waits.
    """

    def __init__(self, ranks: Ranks, parameters: Mapping[str, torch.Tensor]) -> None:
        self._ranks, self._shapes = ranks, {n: p.shape for n, p in parameters.items()}
        self._missing = buckets_of(parameters)
        self._parts: dict[str, torch.Tensor] = {}
        self._sent: list[tuple[list[str], torch.Tensor, Any]] = []

    def add(self, name: str, gradient: torch.Tensor) -> None:
        self._parts[name] = gradient.detach()
        if self._ranks.count == 1:
            return
        while self._missing and all(name in self._parts for name in self._missing[0]):
            names = self._missing.pop(0)
            flat = torch.cat([self._parts.pop(name).reshape(-1) for name in names])
            with in_touch():
                work = distributed.all_reduce(flat, async_op=True)
            self._sent.append((names, flat, work))

    def result(self) -> dict[str, torch.Tensor]:
        """Return {name: mean}; every parameter must have been added."""
        if self._ranks.count == 1:
            return self._parts
        means = {}
        for names, flat, work in self._sent:
            with in_touch():
                work.wait()
            flat /= self._ranks.count
            sizes = [self._shapes[name].numel() for name in names]
            for name, part in zip(names, flat.split(sizes), strict=True):
                means[name] = part.view(self._shapes[name])
        return means


def buckets_of(parameters: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Group names in their order; a new bucket starts when one is full or the dtype changes."""
    buckets: list[list[str]] = []
    size, kind = 0, None
    for name, parameter in parameters.items():
        if not buckets or size >= BUCKET_BYTES or parameter.dtype != kind:
            buckets.append([])
            size, kind = 0, parameter.dtype
        buckets[-1].append(name)
        size += parameter.numel() * parameter.element_size()
    return buckets
