"""`OnlineSearch`: it finds what helps, and leaves the training alone."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from own_data import DIGITS, VALIDATION, arrays, network
from torch import nn
from torch.nn import functional as F

from ddas_gpu import OnlineSearch, SearchSpace, SearchTask
from ddas_gpu.models import build
from ddas_gpu.search import held_out
from ddas_gpu.search import online as module
from ddas_gpu.search.timetable import Timetable

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


def found() -> dict[str, float]:
    torch.manual_seed(0)
    model = build("small", 10).train()
    online = OnlineSearch(
        model,
        F.cross_entropy,
        turned(),
        "sanity",
        every=2,
        policies=7,
        val_batch_size=32,
        steps=180,
        prepare=prepare,
        apply_probability=0.75,
    )
    train(model, 20, online)
    ratios = online.policy.p_o[-1] * len(online.space)
    return dict(zip(map(str, online.space), ratios, strict=True))


def test_turned_validation_images_make_rotate90_win():
    """The paper's sanity check, in 90 steps of the search."""
    ratios = found()
    assert max(ratios, key=ratios.get) == "Rotate90" and ratios["Rotate90"] > 1.5


def test_the_check_fails_with_the_sign_of_the_rewards_flipped(monkeypatch):
    right = module.rewards
    monkeypatch.setattr(module, "rewards", lambda *given: -right(*given))
    assert found()["Rotate90"] < 1


def make(model: nn.Module, loss: Any = F.cross_entropy, **options: Any) -> OnlineSearch:
    settings = {"space": "digits", "every": 2, "prepare": prepare, **options}
    validation = settings.pop("validation", arrays(VALIDATION))
    return OnlineSearch(model, loss, validation, **settings)


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


def gradient(model, theta, inputs, labels) -> dict[str, torch.Tensor]:
    leaves = {name: value.detach().clone().requires_grad_() for name, value in theta.items()}
    loss = F.cross_entropy(torch.func.functional_call(model, leaves, (inputs,)), labels)
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def product(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> torch.Tensor:
    return sum((one[name] * other[name]).sum() for name in one)


def validation_batch(online: OnlineSearch) -> tuple[torch.Tensor, Any]:
    pixels, targets = online._held_out.batch(online.searches, torch.device("cpu"))
    return online.prepare(pixels), targets


def test_it_is_the_step_of_the_search(monkeypatch):
    """r_l = g_val(θ') · (g_0 - g_l)(θ), in double precision, from plain autograd."""
    model = network().double()
    online = make(model, every=1, policies=3, prepare=lambda images: prepare(images).double())
    images, labels = IMAGES[:16], LABELS[:16]
    names, updates = [name for name, _ in model.named_parameters()], []
    theta = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    monkeypatch.setattr(online.parameters, "update", lambda *given: updates.append(given))
    online.step(images, labels)
    begun = online._begun
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.9)  # any optimizer
    inputs, targets = validation_batch(online)
    towards = gradient(model, {name: model.get_parameter(name) for name in names}, inputs, targets)
    online.step(images, labels)
    dots = [product(gradient(model, theta, version, labels), towards) for version in begun.inputs]
    expected = torch.stack([dots[0] - dot for dot in dots[1:]])
    policies, reward = updates[0]
    assert policies.shape == (3, 2)
    torch.testing.assert_close(reward, expected, rtol=1e-9, atol=1e-12)


def test_rewards_give_the_derivative_of_the_validation_loss():
    """By finite differences: J(α) = L_val(θ - η · E_φ[g(φ)]), with every policy tried once."""
    torch.manual_seed(0)
    model, rate, space = network().double(), 0.1, SearchSpace.of(["Rotate", "Invert"], [8], depth=1)
    theta = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    settings = {"every": 1, "policies": 2, "space": space, "apply_probability": 0.4}
    online = make(model, **settings, prepare=lambda images: prepare(images).double())
    alpha = online.parameters
    with torch.no_grad():
        alpha.alpha_o += torch.tensor([0.3, -0.2])
    online.step(IMAGES[:16], LABELS[:16])
    begun, start = online._begun, (alpha.alpha_tp.detach().clone(), alpha.alpha_o.detach().clone())
    assert sorted(begun.policies[:, 0]) == [0, 1]
    gradients = [gradient(model, theta, version, LABELS[:16]) for version in begun.inputs]

    def stepped(alpha_tp: torch.Tensor, alpha_o: torch.Tensor) -> dict[str, torch.Tensor]:
        p_tp, p_o = torch.sigmoid(alpha_tp), torch.softmax(alpha_o, 0)
        weights = [1 - p_tp, *(p_tp * p_o[begun.policies[:, 0]])]
        expected = {
            name: sum(w * g[name] for w, g in zip(weights, gradients, strict=True))
            for name in theta
        }
        return {name: theta[name] - rate * expected[name] for name in theta}

    inputs, targets = validation_batch(online)

    def slope(tp: float, o: torch.Tensor) -> torch.Tensor:
        ends = []
        for sign in (1e-4, -1e-4):
            moved = stepped(start[0] + sign * tp, start[1] + sign * o)
            outputs = torch.func.functional_call(model, moved, (inputs,))
            ends.append(F.cross_entropy(outputs, targets))
        return (ends[0] - ends[1]).detach() / 2e-4

    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(stepped(*start)[name])
    seen = []
    alpha.update = lambda policies, reward: seen.append(alpha.surrogate(policies, reward, 1.0))
    online._finish()
    found = torch.autograd.grad(seen[0], (alpha.alpha_tp, alpha.alpha_o))
    expected_o = torch.stack([slope(0.0, unit) for unit in torch.eye(2).double()])
    torch.testing.assert_close(rate * found[0], slope(1.0, torch.zeros(2)), rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(rate * found[1], expected_o, rtol=1e-5, atol=1e-9)


def test_the_direction_is_a_running_mean(monkeypatch):
    online = make(network(), every=1, val_memory=0.5)
    seen = []
    right = held_out.gradient
    monkeypatch.setattr(held_out, "gradient", lambda *given: seen.append(right(*given)) or seen[-1])
    for _ in range(4):
        online.step(IMAGES[:16], LABELS[:16])
    first, second, third = (gradient["features.0.weight"] for gradient in seen)
    mean = ((first + second) / 2 + third) / 2
    torch.testing.assert_close(online._held_out.direction["features.0.weight"], mean)


@pytest.mark.parametrize("statistics", ["batch", "both"])
def test_the_validation_pass_has_the_statistics_of_batch_norm_asked_for(statistics):
    """With "both", the mean of two gradients of length 1; running statistics stay as they are."""
    torch.manual_seed(0)
    model = build("small", 10).train()
    for _ in range(3):
        model(prepare(IMAGES[:64]))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    online = make(model, every=1, val_statistics=statistics)
    online.step(IMAGES[:16], LABELS[:16])
    inputs, targets = validation_batch(online)
    online.step(IMAGES[:16], LABELS[:16])
    weights = dict(model.named_parameters())
    found = []
    for training in (True, False):
        outputs = model.train(training)(inputs)
        parts = torch.autograd.grad(F.cross_entropy(outputs, targets), list(weights.values()))
        found.append(torch.cat([part.flatten() for part in parts]))
        model.load_state_dict(before)
    both = sum(part / part.norm() for part in found) / 2
    expected = both if statistics == "both" else found[0]
    direction = online._held_out.direction
    torch.testing.assert_close(torch.cat([direction[name].flatten() for name in weights]), expected)


class Segmentation(SearchTask):
    spatial = True

    def loss(self, outputs, masks):
        return F.cross_entropy(outputs, masks.long(), ignore_index=255)

    def versions(self, images, masks, trial):
        return trial.images(images), list(trial.maps(masks, outside=255))


def make_masks(masks: torch.Tensor) -> OnlineSearch:
    held_out = (DIGITS.images[40:60], masks[40:60].numpy())
    model = nn.Conv2d(3, 2, 3, padding=1)
    settings = {"space": "digits", "every": 1, "prepare": prepare, "apply_probability": 0.9}
    return OnlineSearch(model, Segmentation(), held_out, **settings)


def test_masks_move_with_the_pixels():
    masks = (IMAGES[..., 0] > 100).to(torch.uint8)
    online = make_masks(masks)
    images, moved = online.augment(IMAGES[:40], masks[:40])
    inside = moved != 255
    unchanged = (images == IMAGES[:40]).flatten(1).all(1)
    assert moved.shape == masks[:40].shape and not torch.equal(moved, masks[:40])
    assert torch.equal(moved[unchanged], masks[:40][unchanged])
    assert (((images[..., 0] > 100) == (moved == 1)) | ~inside).float().mean() > 0.8
    online.step(IMAGES[:40], masks[:40])
    online.step(IMAGES[:40], masks[:40])
    assert online.searches == 1 and not np.ptp(online.policy.p_o[-1]) == 0


def test_targets_that_move_must_be_given():
    masks = (IMAGES[..., 0] > 100).to(torch.uint8)
    online = make_masks(masks)
    with pytest.raises(ValueError, match=r"images, targets = online\.augment\(images, targets\)"):
        online.augment(IMAGES[:8])


def test_images_are_not_scaled_away_from_their_masks():
    images = [*DIGITS.images[:40]]
    images[1] = np.zeros((32, 32, 3), np.uint8)
    masks = [image[..., 0] for image in images]
    with pytest.raises(ValueError, match=r"image 1 of arrays has \(32, 32\) pixels"):
        make(nn.Conv2d(3, 2, 3, padding=1), loss=Segmentation(), validation=(images, masks))


@pytest.mark.parametrize(
    ("kind", "loss"),
    [
        ("a list of numbers", lambda outputs, y: F.cross_entropy(outputs, torch.tensor(y))),
        ("an array", lambda outputs, y: F.cross_entropy(outputs, torch.from_numpy(y))),
        ("a mapping", lambda outputs, y: F.cross_entropy(outputs, y["label"])),
        ("a pair", lambda outputs, y: F.cross_entropy(outputs, y[0]) + 0 * y[1].sum()),
    ],
)
def test_targets_of_any_form_are_cut_with_the_images(kind, loss):
    numbers = LABELS[:40].long()
    given = {
        "a list of numbers": numbers.tolist(),
        "an array": numbers.numpy(),
        "a mapping": {"label": numbers, "name": ["digit"] * 40},
        "a pair": (numbers, torch.zeros(40, 3)),
    }[kind]

    def judged(outputs, targets):
        if isinstance(targets, torch.Tensor):  # the validation labels
            return F.cross_entropy(outputs, targets)
        return loss(outputs, targets)

    online, plain = make(network(), loss=judged, every=1), make(network(), every=1)
    for _ in range(2):
        online.step(IMAGES[:40], given)
        plain.step(IMAGES[:40], numbers)
    assert np.array_equal(online.policy.p_o, plain.policy.p_o) and online.searches == 2


def test_a_state_is_a_copy():
    """Further steps leave it alone, so that the best state can be kept in memory."""
    online = make(network(), every=1)
    for _ in range(3):
        online.step(IMAGES[:16], LABELS[:16])
    state = online.state_dict()
    kept = pickle.dumps(state)
    resumed = make(network(), every=1)
    resumed.load_state_dict(state)
    for search in (online, resumed):
        search.step(IMAGES[16:32], LABELS[16:32])
        search.step(IMAGES[32:48], LABELS[32:48])
    assert pickle.dumps(state) == kept


def test_the_policy_says_what_it_was_found_with():
    """So that its shifts follow the size of other images, as with `search_policy`."""
    policy = make(network()).policy
    assert policy.settings["image_size"] == 16
    assert policy.scaled(224).space.scale.translate == 14 * policy.space.scale.translate
    assert policy.settings["loss"] == "cross_entropy" and policy.settings["parameters"] > 100
    other = make(network(), validation=(DIGITS.images[:50], DIGITS.labels[:50])).policy
    assert other.settings["fingerprints"] != policy.settings["fingerprints"]


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


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (lambda: make(network(), space="cifar"), "another search space: 30 candidates"),
        (lambda: make(network(), seed=1), "another seed: 0, not 1"),
        (lambda: make(network(width=4)), "another model: Net"),
        (lambda: make(network(), loss=F.nll_loss), "another loss: cross_entropy, not nll_loss"),
        (lambda: make(network(), policies=3), "another policies: 15, not 3"),
        (
            lambda: make(network(), validation=(DIGITS.images[:50], DIGITS.labels[:50])),
            "another validation set: arrays",
        ),
    ],
)
def test_the_state_of_another_search_is_refused(other, sentence):
    state, loaded = make(network()).state_dict(), other()
    before = loaded.policy
    with pytest.raises(ValueError, match=sentence):
        loaded.load_state_dict(state)
    assert loaded.policy == before


def test_layouts_and_the_policy():
    online = make(network(), apply_probability=0.9)
    assert len(online.policy) == 1 and online.policy.space == SearchSpace.preset("digits")
    other = make(network(), apply_probability=0.9)
    augmented = online.augment(IMAGES[:20])
    assert augmented.dtype == torch.uint8 and not torch.equal(augmented, IMAGES[:20])
    first = other.augment(IMAGES[:20].permute(0, 3, 1, 2))
    assert torch.equal(first.permute(0, 2, 3, 1), augmented)
    assert not torch.equal(online.augment(IMAGES[:20]), augmented)  # drawn anew in each step


def test_a_warm_up_and_a_number_of_searches():
    """Images stay as they are in the warm-up; after the last search the policy stays."""
    how: dict[str, Any] = {"warmup": 3, "searches": 2, "apply_probability": 0.9}
    online = make(network(), every=2, **how)
    same, searched, policies = [], [], []
    for _ in range(10):
        online.step(IMAGES[:32], LABELS[:32])
        same.append(torch.equal(online.augment(IMAGES[:32]), IMAGES[:32]))
        searched.append(online.searches)
        policies.append(online.policy.p_o[-1])  # finishes a search that was begun
    assert same == [True] * 3 + [False] * 7
    assert searched == [0, 0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert np.array_equal(policies[5], policies[9])
    assert not np.array_equal(policies[4], policies[5])
    given = online.policy.settings["online"]
    assert given["warmup"] == 3 and given["searches"] == 2 and given["steps"] == 10
    # The rates follow from the searches that there will be, not from the steps.
    few, short = make(network(), every=2, **how), make(network(), every=2, steps=4)
    rates = [x.parameters.adam_o.param_groups[0]["lr"] for x in (few, short)]
    assert rates[0] == rates[1]


def test_it_searches_when_its_timetable_says():
    images = torch.zeros(1, 16, 16, 3, dtype=torch.uint8)
    online = make(network(), every=None, steps=4_800)
    assert online.times == Timetable(4_800, warmup=160, every=1, searches=75)
    online.steps = 159
    online.step(images, LABELS[:1])
    assert online._begun is None
    online.step(images, LABELS[:1])
    assert online._begun is not None


def test_an_empty_batch():
    online = make(network(), every=1)
    online.step(IMAGES[:0], LABELS[:0])
    images, labels = online.augment(IMAGES[:0], LABELS[:0])
    assert images.shape == IMAGES[:0].shape and not len(labels) and online.searches == 0


def test_targets_stay_too_in_the_warm_up():
    images, labels = make(network(), warmup=1).augment(IMAGES[:8], LABELS[:8])
    assert torch.equal(images, IMAGES[:8]) and torch.equal(labels, LABELS[:8])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: make(network(), every=0), "every must be at least 1"),
        (lambda: make(network(), policies=1), "policies must be at least 2"),
        (lambda: make(network(), steps=0), "steps must be at least 1"),
        (lambda: make(network(), warmup=-1), "warmup must be at least 0"),
        (lambda: make(network(), searches=0), "searches must be at least 1"),
        (lambda: make(network(), warmup=20, steps=20), "20 steps leaves none of 20 to search in"),
        (lambda: make(network(), space="cifr"), "unknown space 'cifr'"),
        (lambda: make(network(), space="coco"), "needs boxes"),
        (lambda: make(network().requires_grad_(False)), "no parameter that requires a gradient"),
        (lambda: make(network()).augment(IMAGES.float()), "uint8 batch"),
        (lambda: make(network()).augment(IMAGES.numpy()), "not ndarray"),
        (
            lambda: make(network()).step(IMAGES[:8, :12], LABELS[:8]),
            r"\(B, 3, 16, 16\) or \(B, 16, 16, 3\), of the size of the validation images",
        ),
        (lambda: make(network()).load_state_dict({}), "no state of an OnlineSearch"),
        (lambda: make(network(), val_statistics="bath"), "one of batch, both, not 'bath'"),
        (lambda: make(type(network())), "model is the nn.Module that you train, not the class Net"),
        (lambda: make(network(), loss=None), "loss is .* not NoneType"),
        (lambda: make(network(), loss=nn.CrossEntropyLoss), "not the class CrossEntropyLoss"),
        (lambda: judged(lambda outputs, labels: outputs[:, 0]), "one number per batch"),
    ],
)
def test_mistakes_are_named(call, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        call()


def judged(loss: Any) -> None:
    online = make(network(), loss=loss, every=1)
    online.step(IMAGES[:8], LABELS[:8])
    online.step(IMAGES[:8], LABELS[:8])
