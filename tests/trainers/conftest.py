"""A small data set, a policy and a recording of what a model is shown."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ddas_gpu import PolicySchedule, SearchSpace

SPACE = SearchSpace.preset("cifar")


@pytest.fixture(scope="session")
def schedule() -> PolicySchedule:
    """Three epochs over the whole bank."""
    rows = np.random.default_rng(5).dirichlet(np.ones(len(SPACE)), 3)
    return PolicySchedule(SPACE, np.array([0.3, 0.5, 0.7]), rows)


class Recorder(torch.nn.Module):
    """A linear classifier of 22 classes that keeps the inputs it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3 * 12 * 10, 22)
        self.seen: list[torch.Tensor] = []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.append(images.detach().clone())
        return self.layer(images.flatten(1))


@pytest.fixture
def recorder() -> type[Recorder]:
    return Recorder


@pytest.fixture
def same_batches():
    def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
        return len(one) == len(other) and all(map(torch.equal, one, other))

    return same
