"""A call with other tensors: what torch's `functional_call` gives, and the model as it was."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call

from ddas_gpu.gradients.layer_rules import call_with


class TwoNames(nn.Module):
    """A module that the model has as an attribute and in a list."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.layers = nn.Sequential(self.first, self.norm, nn.Linear(4, 2))

    def forward(self, x):
        return self.layers(x)


class TwoModules(nn.Module):
    """One parameter in two modules, and twice in one of them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.again = self.shift = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return self.second(self.first(x).tanh() + self.again) + self.shift


class Replacing(nn.Module):
    """Gives its buffer a new tensor in every call."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        y = self.layer(x)
        self.mean = 0.9 * self.mean + 0.1 * y.mean(0)
        return y - self.mean


MODELS = [TwoNames, TwoModules, Replacing]


def other_tensors(model):
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        name: torch.rand_like(t) if t.is_floating_point() else t.clone()
        for name, t in named.items()
    }


@pytest.mark.parametrize("make", MODELS)
def test_computes_with_the_given_tensors(make):
    model, x = make(), torch.randn(8, 4)
    tensors = other_tensors(model)
    expected = functional_call(copy.deepcopy(model), copy.deepcopy(tensors), (x,))
    torch.testing.assert_close(call_with(model, tensors, x), expected)


@pytest.mark.parametrize("make", MODELS)
def test_leaves_every_tensor_of_the_model_where_and_as_it_was(make):
    model = make()
    before = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    values = [tensor.detach().clone() for _, tensor in before]
    call_with(model, other_tensors(model), torch.randn(8, 4))
    after = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    assert [name for name, _ in after] == [name for name, _ in before]
    for (_, old), (_, new), value in zip(before, after, values, strict=True):
        assert new is old
        assert torch.equal(new, value)


def test_hands_back_a_buffer_that_the_model_replaced():
    model, x = Replacing(), torch.randn(8, 4)
    tensors = {"mean": torch.ones(4)}
    call_with(model, tensors, x)
    torch.testing.assert_close(tensors["mean"], 0.9 + 0.1 * model.layer(x).mean(0))
    assert not tensors["mean"].requires_grad
    assert torch.equal(model.mean, torch.zeros(4))
