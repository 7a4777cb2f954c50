"""Algorithm 1, step by step, against the written-out mathematics."""

from __future__ import annotations

import copy
import dataclasses
import io
import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ddas_gpu import SearchSpace
from ddas_gpu.gradients import PolicyGradients
from ddas_gpu.pipelines.pixels import channel_statistics, normalise
from ddas_gpu.search import algorithm as searching
from ddas_gpu.search.algorithm import Diverged, Search, open_search
from ddas_gpu.search.alpha import apply_rate
from ddas_gpu.search.settings import preset

SPACE = SearchSpace.of(("Identity", "FlipUD", "Rotate", "Invert"), levels=(8,), depth=2)  # K = 4


pytestmark = pytest.mark.usefixtures("one_thread")


def make(space: SearchSpace = SPACE, **changes) -> Search:
    """A search on a few digits; two steps an epoch unless told otherwise."""
    small = {"train_images": 32, "val_images": 40, "batch_size": 16, "val_batch_size": 20}
    small |= {"epochs": 2, "policies": 3, "warmup_epochs": 0}
    settings = preset("digits").replace(**small | changes)
    return open_search(settings, space)


def in_float64(search: Search) -> Search:
    """The same search in double precision."""
    search.model.double()
    versions, inputs = search.task.versions, search.task.validation_inputs

    def double_versions(*arguments):
        made = versions(*arguments)
        return dataclasses.replace(made, inputs=made.inputs.double())

    def double_inputs(batch):
        images, targets = inputs(batch)
        return images.double(), targets

    search.task.versions, search.task.validation_inputs = double_versions, double_inputs
    return search


def recorded(monkeypatch) -> list[torch.Tensor]:
    """The images (L̂ + 1, B, 3, H, W) of every step from now on."""
    seen = []

    class Recorded(PolicyGradients):
        def __init__(self, model, loss_fn, images, *others, **options):
            seen.append(images.clone())
            super().__init__(model, loss_fn, images, *others, **options)

    monkeypatch.setattr(searching, "PolicyGradients", Recorded)
    return seen


def validation_batch(search: Search, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of the validation images of a step."""
    return search.task.validation_inputs(search.validation_batches.batch(step))


@pytest.mark.parametrize(
    ("method", "compare_with"),
    [("fast", "clean"), ("lean", "clean"), ("reference", "clean"), ("fast", "policies")],
)
def test_alpha_gradient_is_that_of_the_true_validation_loss(method, compare_with, monkeypatch):
    """Central differences of L_val(θ - η Σ w_l(α) g_l) in every α.

    The paper holds Z constant; compared with the step's other policies it is differentiated.
    The step must be plain SGD, as in the paper's derivation. The surrogate leaves out η and
    divides by Z_g; the rest must agree, batch norm in training mode and all.
    """
    plain = {"momentum": 0.0, "weight_decay": 0.0, "val_memory": 0.0}
    search = in_float64(make(gradients=method, compare_with=compare_with, **plain))
    with torch.no_grad():  # away from the uniform start
        search.parameters.alpha_o.copy_(torch.tensor([0.3, -0.2, 0.5, -0.7], dtype=torch.float64))
    alpha_o, alpha_tp = search.parameters.alpha_o.tolist(), search.parameters.alpha_tp.item()
    seen, model = recorded(monkeypatch), copy.deepcopy(search.model)
    targets = search.batches.batch(0).labels
    val_images, val_targets = validation_batch(search, 0)
    metrics = search.step()
    policies = np.array(metrics["policies"])

    names, weights = zip(*model.named_parameters(), strict=True)
    gradients = [
        torch.autograd.grad(F.cross_entropy(model(images), targets), weights) for images in seen[0]
    ]

    def shares(alpha: list[float]) -> np.ndarray:
        exps = np.exp(alpha)
        return (exps / exps.sum())[policies].prod(1)

    z = shares(alpha_o).sum()

    def validation_loss(alpha: list[float]) -> float:
        """L_val after the step that α = (α_o…, α_tp) would have taken."""
        drawn = shares(alpha[:-1])
        held = z if compare_with == "clean" else drawn.sum()
        w = drawn / held / (1 + math.exp(-alpha[-1]))
        w = [1 - w.sum(), *w]
        stepped = {
            name: weight.detach()
            - metrics["learning_rate"]
            * sum(w_l * g[i] for w_l, g in zip(w, gradients, strict=True))
            for i, (name, weight) in enumerate(zip(names, weights, strict=True))
        }
        outputs = torch.func.functional_call(model, stepped, (val_images,))
        return F.cross_entropy(outputs, val_targets).item()

    start, tiny = [*alpha_o, alpha_tp], 1e-5
    differences = []
    for i in range(len(start)):
        ends = []
        for sign in (1, -1):
            alpha = list(start)
            alpha[i] += sign * tiny
            ends.append(validation_loss(alpha))
        differences.append((ends[0] - ends[1]) / (2 * tiny))
    scale = metrics["learning_rate"] * sum(abs(r) for r in metrics["rewards"])
    ours = [*search.parameters.alpha_o.grad.tolist(), search.parameters.alpha_tp.grad.item()]
    assert max(abs(d) for d in differences) > 1e-7
    np.testing.assert_allclose(np.array(ours) * scale, differences, rtol=1e-4, atol=1e-9)
    assert validation_loss(start) == pytest.approx(metrics["validation_loss"], rel=1e-12)


def test_weights_move_by_sgd_along_the_weighted_gradient(monkeypatch):
    """With momentum and weight decay, over two steps, against torch's SGD on the weighted loss."""
    search = in_float64(make())
    seen, model = recorded(monkeypatch), copy.deepcopy(search.model)
    sgd = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9, weight_decay=5e-4)
    for step in range(2):
        targets = search.batches.batch(step).labels
        shares = None
        real = search.parameters.weights

        def keep(policies, real=real):
            nonlocal shares
            shares = real(policies)
            return shares

        monkeypatch.setattr(search.parameters, "weights", keep)
        metrics = search.step()
        monkeypatch.setattr(search.parameters, "weights", real)
        losses = torch.stack([F.cross_entropy(model(images), targets) for images in seen[step]])
        loss = (shares * losses).sum()
        sgd.param_groups[0]["lr"] = metrics["learning_rate"]
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-9)
        assert metrics["clean_loss"] == pytest.approx(losses[0].item(), rel=1e-9)
    for ours, theirs in zip(search.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


def test_running_statistics_are_those_of_the_clean_batches(monkeypatch):
    search = in_float64(make())
    seen, model = recorded(monkeypatch), copy.deepcopy(search.model)
    search.step()
    model(seen[0][0])  # one forward pass of the clean batch, in training mode
    for (name, ours), theirs in zip(search.model.named_buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12, msg=name)


def test_versions_share_crop_and_holes(monkeypatch):
    """Version l is the clean version under its policy and nothing else."""
    search = make(SearchSpace.of(("Identity", "Invert"), depth=1), padding=2, cutout=6, policies=6)
    seen = recorded(monkeypatch)
    metrics = search.step()
    clean, statistics = search.batches.batch(0).images, channel_statistics(search.train.images)
    inputs = {0: normalise(clean, *statistics), 1: normalise(255 - clean, *statistics)}
    holes = (seen[0][0] == 0) & (inputs[0] != 0)
    assert holes.any()
    assert {policy[0] for policy in metrics["policies"]} == {0, 1}
    for policy, images in zip([[0], *metrics["policies"]], seen[0], strict=True):
        torch.testing.assert_close(images, inputs[policy[0]].masked_fill(holes, 0.0))


def test_validation_images_are_only_normalised_and_all_are_used():
    search = make(padding=2, cutout=6, flip=True)
    labels = []
    for step in range(2):  # 40 validation images, 20 a step
        images, targets = validation_batch(search, step)
        statistics = channel_statistics(search.train.images)
        rows = normalise(torch.from_numpy(search.validation.images), *statistics)
        assert all((rows == image).flatten(1).all(1).any() for image in images)
        labels += targets.tolist()
    assert sorted(labels) == sorted(search.validation.labels.tolist())


def test_every_training_image_is_seen_once_an_epoch():
    search = make()
    for epoch in range(2):
        steps = range(epoch * 2, epoch * 2 + 2)
        seen = np.concatenate([search.batches.batch(step).images.numpy() for step in steps])
        want = search.train.images
        assert sorted(i.tobytes() for i in seen) == sorted(i.tobytes() for i in want)
    first, later = (search.batches.batch(step).images for step in (0, 2))
    assert not torch.equal(first, later)


@pytest.mark.parametrize("ops", [("Identity",), ("Identity", "Color")])
def test_policies_that_change_nothing_leave_alpha_alone(ops):
    """Color does nothing to grey digits: Z_g = 0, and 0/0 would poison α for good."""
    search = make(SearchSpace.of(ops, levels=(8,), depth=2), epochs=3)
    before = search.parameters.apply_probability
    while not search.finished:
        assert search.step()["rewards"] == [0.0, 0.0, 0.0]
    np.testing.assert_array_equal(search.parameters.op_probabilities, 1 / len(search.space))
    assert search.parameters.apply_probability == before
    assert not search.parameters.adam_o.state
    assert not search.parameters.adam_tp.state


def test_unchanged_versions_have_no_reward_among_others_that_do():
    search = make(SearchSpace.of(("Identity", "Invert"), depth=1), policies=6)
    metrics = search.step()
    for (candidate,), reward in zip(metrics["policies"], metrics["rewards"], strict=True):
        assert (reward == 0.0) == (candidate == 0)


@pytest.mark.parametrize("where", ["training", "validation"])
def test_a_loss_that_is_no_number_stops_before_alpha_is_touched(where):
    search = make()
    search.step()
    before = search.parameters.op_probabilities
    if where == "training":
        with torch.no_grad():
            search.model.classifier.weight[0, 0] = math.nan
    else:
        real = search.learner.descend
        search.learner.descend = lambda gradient, rate: real(gradient, 1e38)
    with pytest.raises(Diverged, match=f"{where} loss is no longer a finite number in step 1"):
        search.step()
    np.testing.assert_array_equal(search.parameters.op_probabilities, before)


def test_with_float16_the_error_says_that_it_ends_early():
    search = make(amp="fp16")
    with torch.no_grad():
        search.model.classifier.weight[0, 0] = math.inf
    with pytest.raises(Diverged, match=r"--amp bf16 or off: float16 ends at 65,504"):
        search.step()


def test_a_resumed_search_computes_in_the_bits_that_it_was_begun_with():
    """--amp auto means another type on another device."""
    first, second = make(amp="bf16"), make(amp="auto")
    state = first.state_dict()
    assert (state["precision"], second.state_dict()["precision"]) == ("bfloat16", "float32")
    second.load_state_dict(state)
    assert second.learner.precision == "bfloat16"
    assert second.step()["gradients"].startswith("fast gradients, computed in bfloat16, hold")
    second.load_state_dict(make().state_dict())
    assert second.learner.precision == "float32"
    del state["precision"]  # as of 0.2.0
    second.load_state_dict(state)
    assert second.learner.precision == "float32"


def test_learning_rates():
    cosine = make(epochs=5, lr=0.1)
    rates = [cosine.learning_rate(step) for step in range(10)]
    assert rates[0] == 0.1
    assert rates[5] == pytest.approx(0.05)
    assert all(a > b > 0 for a, b in itertools.pairwise(rates))
    steps = make(epochs=5, lr=0.1, lr_schedule="step", lr_steps=(2, 4))
    rates = [steps.learning_rate(step) for step in range(10)]
    np.testing.assert_allclose(rates, [0.1] * 4 + [0.01] * 4 + [0.001] * 2)


def test_schedule_has_an_entry_an_epoch_and_is_smoothed():
    search = make(epochs=3, smoothing=2, uniform_share=0.25)
    raw = []
    while not search.finished:
        metrics = search.step()
        if metrics["step"] % 2 == 1:
            raw.append((metrics["apply_probability"], search.parameters.op_probabilities))
    schedule = search.schedule()
    p_tp = [p for p, _ in raw]
    np.testing.assert_allclose(
        schedule.p_tp, [p_tp[0], (p_tp[0] + p_tp[1]) / 2, (p_tp[1] + p_tp[2]) / 2]
    )
    np.testing.assert_allclose(schedule.p_o, [0.75 * p + 0.25 / len(SPACE) for _, p in raw])


def test_the_seed_decides_everything():
    def end(seed: int) -> bytes:
        search = make(seed=seed, epochs=1)
        while not search.finished:
            search.step()
        return search.parameters.op_probabilities.tobytes()

    assert end(3) == end(3)
    assert end(3) != end(4)


RELIABLE = {
    "draws": "deck",
    "compare_with": "policies",
    "val_memory": 0.9,
    "lr_apply": None,
}


def test_a_search_with_all_our_settings_continues_from_its_state():
    whole, first, second = (make(SPACE, **RELIABLE) for _ in range(3))
    while not whole.finished:
        whole.step()
    first.step()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    while not second.finished:
        second.step()
    assert second.schedule().to_bytes() == whole.schedule().to_bytes()


def test_rewards_are_measured_along_the_mean_of_the_validation_gradients(monkeypatch):
    search, seen = make(val_memory=0.5), []
    real = search.learner.validation_gradient

    def keep(*batch):
        loss, gradient = real(*batch)
        seen.append({name: part.clone() for name, part in gradient.items()})
        return loss, gradient

    monkeypatch.setattr(search.learner, "validation_gradient", keep)
    for _ in range(3):
        search.step()
    for name, mean in search.learner.direction.items():
        want = 0.25 * seen[0][name] + 0.25 * seen[1][name] + 0.5 * seen[2][name]
        torch.testing.assert_close(mean, want)


def test_the_validation_gradient_with_both_statistics_is_the_mean_of_unit_vectors():
    """The second one is that of the network in evaluation mode, whose running means stay."""
    own, both = make(), make(val_statistics="both")
    batch = both.task.validation_inputs(both.validation_batches.batch(0))
    buffers = {name: buffer.clone() for name, buffer in both.model.named_buffers()}
    numbers, direction = both.learner.validation_gradient(*batch)
    first_numbers, first = own.learner.validation_gradient(*batch)
    own.model.eval()
    loss = own.task.loss(own.model(batch[0]), batch[1])
    parts = torch.autograd.grad(loss, own.learner.weights)
    second = dict(zip(own.learner.names, parts, strict=True))

    def flat(gradient):
        return torch.cat([gradient[name].flatten() for name in own.learner.names])

    want = (flat(first) / flat(first).norm() + flat(second) / flat(second).norm()) / 2
    torch.testing.assert_close(flat(direction), want)
    torch.testing.assert_close(numbers, first_numbers)
    assert all(module.training for module in both.model.modules())
    for name, buffer in both.model.named_buffers():
        assert torch.equal(buffer, buffers[name])


def test_without_a_rate_the_probability_to_augment_can_go_anywhere():
    assert make(lr_apply=None).parameters.adam_tp.param_groups[0]["lr"] == 0.05
    assert apply_rate(None, steps=1000) == 0.01
    assert apply_rate(0.001, steps=1000) == 0.001
