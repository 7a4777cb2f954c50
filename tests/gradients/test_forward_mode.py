"""Products in forward mode, against the gradients themselves in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ddas_gpu.gradients import PolicyGradients, forward_mode, version_products
from ddas_gpu.models import build


class Square(torch.autograd.Function):
    """An op without a forward derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]


class Squared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(48, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(Square.apply(self.norm(self.first(x.flatten(1)))))


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 8), nn.Linear(8, 3)

    def forward(self, x):
        tokens = self.first(x.flatten(2))
        return self.last(F.scaled_dot_product_attention(tokens, tokens, tokens).mean(1))


class Two(nn.Module):
    """Two heads in a dict, and an output that no loss uses."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(48, 3), nn.Linear(48, 2)

    def forward(self, x):
        return {"a": self.a(x.flatten(1)), "b": self.b(x.flatten(1)), "count": 7, "x": x}


def plain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def two_losses(outputs: Any, labels: torch.Tensor) -> torch.Tensor:
    assert len(outputs["x"]) == len(labels) and outputs["count"] == 7
    return F.cross_entropy(outputs["a"], labels) + F.mse_loss(outputs["b"][:, 0], labels.double())


CASES = {
    "plain": (plain, 4, F.cross_entropy),
    "batch norm": (lambda: build("small", 3), 16, F.cross_entropy),
    "no forward derivative": (Squared, 4, F.cross_entropy),
    "attention": (Attending, 4, F.cross_entropy),
    "two heads": (Two, 4, two_losses),
}


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: value.detach().clone() for name, value in named}


def case_of(name: str) -> tuple[Any, ...]:
    """A network, its loss, four versions of six images, their labels and a direction."""
    make, size, loss = CASES[name]
    torch.manual_seed(0)
    model = make().double()
    images = torch.rand(4, 6, 3, size, size).double()
    direction = {name: torch.randn_like(weight) for name, weight in model.named_parameters()}
    return model, loss, images, [torch.arange(6) % 3] * 4, direction


@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_the_gradients(name):
    model, loss, images, labels, direction = case_of(name)
    before = state_of(model)
    found = version_products(model, loss, images, labels, state_of(model), direction)
    for key, value in state_of(model).items():
        assert torch.equal(value, before[key]), key
    assert (model in forward_mode._no_forward_mode) == (name == "no forward derivative")
    again = version_products(model, loss, images, labels, state_of(model), direction)
    gradients = PolicyGradients(model, loss, images, labels, [0.25] * 4, method="reference")
    for each in (found, again):
        torch.testing.assert_close(each, gradients.dot(direction), rtol=1e-9, atol=1e-12)


def test_they_are_those_at_the_given_parameters():
    """Not at the model's, which an optimizer may have moved; frozen weights need no direction."""
    model, loss, images, labels, direction = case_of("batch norm")
    state = state_of(model)
    expected = version_products(model, loss, images, labels, state_of(model), direction)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.5)
    assert torch.equal(version_products(model, loss, images, labels, state, direction), expected)
    part = {name: tangent for name, tangent in direction.items() if name != "stem.weight"}
    frozen = {**part, "stem.weight": torch.zeros_like(direction["stem.weight"])}
    torch.testing.assert_close(
        version_products(model, loss, images, labels, state, part),
        version_products(model, loss, images, labels, state, frozen),
    )


def test_batch_norm_in_evaluation_mode_uses_its_running_statistics():
    model, loss, images, labels, direction = case_of("batch norm")
    model.eval()
    found = version_products(model, loss, images, labels, state_of(model), direction)
    gradients = PolicyGradients(model, loss, images, labels, [0.25] * 4, method="reference")
    torch.testing.assert_close(found, gradients.dot(direction), rtol=1e-9, atol=1e-12)


def test_outputs_without_a_row_per_image_are_named():
    model = nn.Sequential(nn.Flatten(0), nn.Linear(12, 3))
    images, direction = torch.rand(2, 2, 3, 1, 1), {"1.bias": torch.ones(3)}
    with pytest.raises(ValueError, match=r"one row per image: 4 images.*shape \(3,\)"):
        version_products(
            model, lambda out, _: out.sum(), images, [None] * 2, state_of(model), direction
        )
