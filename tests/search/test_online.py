"""`OnlineSearch`: it finds what helps, and leaves the training alone."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from own_data import DIGITS, VALIDATION, arrays, network
from torch import nn
from torch.nn import functional as F

from ddas_gpu import OnlineSearch, SearchSpace
from ddas_gpu.models import build
from ddas_gpu.search import online as module

pytestmark = pytest.mark.usefixtures("one_thread")

IMAGES, LABELS = torch.from_numpy(DIGITS.images), torch.from_numpy(DIGITS.labels)


def prepare(images: torch.Tensor) -> torch.Tensor:
    return (images.permute(0, 3, 1, 2).float() - 78) / 96


def train(
    model: nn.Module, epochs: int, online: OnlineSearch | None = None, augmented: bool = True
) -> torch.optim.Optimizer:
    """A user's loop over 300 digits."""
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for chosen in torch.randperm(300, generator=generator)[:288].split(32):
            images, labels = IMAGES[chosen], LABELS[chosen]
            if online is not None:
                online.step(images, labels)
                images = online.augment(images) if augmented else images
            optimizer.zero_grad()
            F.cross_entropy(model(prepare(images)), labels).backward()
            optimizer.step()
        if online is not None:
            online.end_epoch()
    return optimizer


def turned() -> tuple[np.ndarray, np.ndarray]:
    images, labels = DIGITS.images[300:1200], DIGITS.labels[300:1200]
    return np.rot90(images, 1, (1, 2)).copy(), labels


def found(policies: int) -> dict[str, float]:
    torch.manual_seed(0)
    model = build("small", 10).train()
    online = OnlineSearch(
        model,
        F.cross_entropy,
        turned(),
        "sanity",
        every=2,
        policies=policies,
        lr_ops=0.05,
        prepare=prepare,
        apply_probability=0.75,
    )
    train(model, 20, online)
    ratios = online.policy.p_o[-1] * len(online.space)
    return dict(zip(map(str, online.space), ratios, strict=True))


@pytest.mark.parametrize("policies", [1, 2])
def test_turned_validation_images_make_rotate90_win(policies):
    """The paper's sanity check, in 90 steps of the search."""
    ratios = found(policies)
    assert max(ratios, key=ratios.get) == "Rotate90" and ratios["Rotate90"] > 1.5


def test_the_check_fails_with_the_sign_of_the_rewards_flipped(monkeypatch):
    monkeypatch.setattr(module, "rewards", lambda dots: dots[1:] - dots[0])
    ratios = found(2)
    assert ratios["Rotate90"] < 1


def make(model: nn.Module, **options: Any) -> OnlineSearch:
    settings = {"space": "digits", "every": 2, "prepare": prepare, **options}
    return OnlineSearch(model, F.cross_entropy, arrays(VALIDATION), **settings)


class Dropping(type(network())):
    """A network that draws random numbers."""

    def forward(self, images):
        return self.head(F.dropout(self.features(images), 0.2, self.training))


def test_without_augment_the_training_is_the_same_to_the_bit():
    alone, searched = Dropping(), Dropping()
    searched.load_state_dict(alone.state_dict())
    online = make(searched)
    torch.manual_seed(1)
    train(alone, 2)
    torch.manual_seed(1)
    train(searched, 2, online, augmented=False)
    assert online.searches == 9
    for name, value in alone.state_dict().items():
        assert torch.equal(value, searched.state_dict()[name]), name


def test_it_is_the_step_of_the_search(monkeypatch):
    """r = g_val(θ') · (g_0 - g_l)(θ), in double precision, from plain autograd."""
    model = network().double()
    online = make(model, every=1, policies=2, prepare=lambda images: prepare(images).double())
    images, labels = IMAGES[:16], LABELS[:16]
    before, seen = copy.deepcopy(model), []
    real = module.PolicyGradients

    def recorded(model, loss, inputs, targets, *weights, **options):
        seen.append(inputs)
        return real(model, loss, inputs, targets, *weights, **options)

    updates = []
    monkeypatch.setattr(module, "PolicyGradients", recorded)
    monkeypatch.setattr(online.parameters, "update", lambda *given: updates.append(given))
    online.step(images, labels)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.9)  # any optimizer
    after, (inputs, targets) = copy.deepcopy(model), online._validation_batch(torch.device("cpu"))
    online.step(images, labels)

    def gradient(model, inputs, targets):
        loss = F.cross_entropy(model(inputs), targets)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])

    towards = gradient(after, inputs, targets)
    dots = [gradient(before, version, labels) @ towards for version in seen[0]]
    expected = torch.stack([dots[0] - dot for dot in dots[1:]])
    torch.testing.assert_close(updates[0][1], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("cut", [1, 2])
def test_it_resumes_to_the_same_bytes(tmp_path, cut):
    """Saved after any step of the optimizer."""

    def run(model: nn.Module, online: OnlineSearch, steps: range) -> None:
        for step in steps:
            chosen = slice(32 * step, 32 * step + 32)
            online.step(IMAGES[chosen], LABELS[chosen])
            inputs = prepare(online.augment(IMAGES[chosen]))
            gradients = torch.autograd.grad(
                F.cross_entropy(model(inputs), LABELS[chosen]), list(model.parameters())
            )
            with torch.no_grad():
                for weight, gradient in zip(model.parameters(), gradients, strict=True):
                    weight -= 0.05 * gradient

    model = network()
    whole = make(model)
    run(model, whole, range(6))
    model = network()
    first = make(model)
    run(model, first, range(cut))
    torch.save([model.state_dict(), first.state_dict()], tmp_path / "state.pt")
    weights, state = torch.load(tmp_path / "state.pt", weights_only=True)
    model = network()
    model.load_state_dict(weights)
    resumed = make(model)
    resumed.load_state_dict(state)
    run(model, resumed, range(cut, 6))
    assert resumed.policy == whole.policy and resumed.searches == 3


def test_layouts_and_the_policy():
    online = make(network(), apply_probability=0.9)
    assert len(online.policy) == 1 and online.policy.space == SearchSpace.preset("digits")
    other = make(network(), apply_probability=0.9)
    augmented = online.augment(IMAGES[:20])
    assert augmented.dtype == torch.uint8 and not torch.equal(augmented, IMAGES[:20])
    first = other.augment(IMAGES[:20].permute(0, 3, 1, 2))
    assert torch.equal(first.permute(0, 2, 3, 1), augmented)
    assert not torch.equal(online.augment(IMAGES[:20]), augmented)  # drawn anew in each step


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: make(network(), every=0), "every must be above 0"),
        (lambda: make(network(), space="cifr"), "unknown space 'cifr'"),
        (lambda: make(network()).augment(IMAGES.float()), "uint8 batch"),
    ],
)
def test_mistakes_are_named(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
