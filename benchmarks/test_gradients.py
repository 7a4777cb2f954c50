"""A whole search step with each gradient method, against the one that keeps every gradient.

A step: the gradients of L̂+1 versions of a batch, their weighted sum, an SGD step in place, the
gradient of a validation batch, and its dot product with every version's gradient.
"""

from __future__ import annotations

import pytest
import torch
from gradients.live_gradients import extra_gradient_copies
from side_by_side import take_turns
from torch.nn import functional as F

from ddas_gpu.gradients import PolicyGradients
from ddas_gpu.models import build

OURS, PEERS = "layerwise", ("reference", "jvp")
COLUMNS = (
    "model",
    "L̂",
    "batch",
    "validation",
    "px",
    "reference, ms",
    "layerwise",
    "jvp",
    "copies: reference",
    "layerwise",
    "jvp",
)
NOTE = (
    "Time of a whole step over the reference's, medians of interleaved rounds (quartiles over the "
    "reference's median in brackets), two threads: below 1 is faster. Copies: the most gradients "
    "of the model alive at once beyond plain training's, from following every storage; negative "
    "where one folded pass saves the scratch that accumulating gradients takes."
)


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(min(2, before))
    yield
    torch.set_num_threads(before)


def make_step(name: str, policies: int, batch: int, validation: int, size: int, device: str):
    """Return a function of the method that runs one search step of its own model."""
    torch.manual_seed(0)
    model = build(name, 10).to(device, memory_format=torch.channels_last)  # as in the search
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(parameters.values(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    images = torch.randn(policies + 1, batch, size, size, 3, device=device).movedim(-1, 2)
    labels = torch.randint(10, (batch,), device=device)
    validation_images = torch.randn(validation, size, size, 3, device=device).movedim(-1, 1)
    validation_labels = torch.randint(10, (validation,), device=device)
    weights = torch.full((policies + 1,), 1 / (policies + 1))

    def step(method: str) -> torch.Tensor:
        gradients = PolicyGradients(model, F.cross_entropy, images, labels, method)
        for name, gradient in gradients.weighted(weights).items():
            parameters[name].grad = gradient
        optimizer.step()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(validation_images), validation_labels)
        direction = torch.autograd.grad(loss, list(parameters.values()))
        return gradients.dot(dict(zip(parameters, direction, strict=True)))

    return step


@pytest.mark.parametrize(
    ("name", "policies", "batch", "validation", "size", "rounds"),
    [
        ("small", 3, 32, 128, 16, 15),
        ("small", 7, 32, 128, 16, 15),
        ("small", 11, 32, 128, 16, 15),
        ("small", 11, 8, 32, 16, 15),
        ("small", 3, 32, 128, 32, 9),
        ("small", 11, 32, 128, 32, 9),
        ("wrn-10-1", 3, 32, 64, 32, 5),
        ("wrn-10-1", 11, 32, 64, 32, 5),
        ("wrn-40-2", 3, 32, 256, 32, 3),
    ],
)
def test_search_step(name, policies, batch, validation, size, rounds, device, benchmark, tables):
    step = make_step(name, policies, batch, validation, size, device)
    ways = {method: (lambda method=method: step(method)) for method in (OURS, *PEERS)}
    times = take_turns(ways, rounds=rounds)
    reference = times["reference"].median

    def ratio(method: str) -> str:
        timing = times[method]
        low, high = timing.low / reference, timing.high / reference
        return f"{timing.median / reference:.2f} [{low:.2f}–{high:.2f}]"

    copies = [
        extra_gradient_copies(build(name, 10), policies, m) for m in ("reference", OURS, "jvp")
    ]
    tables.get_or_make("Search step, by gradient method", COLUMNS, NOTE).add(
        *(name, policies, batch, validation, size, f"{reference * 1e3:.0f}"),
        *(ratio(OURS), ratio("jvp")),
        *(f"{count:.2f}" for count in copies),
    )
    benchmark.extra_info["ratio"] = reference / times[OURS].median
    benchmark.pedantic(ways[OURS], rounds=1)
