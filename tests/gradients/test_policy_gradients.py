"""The public interface: what it accepts, which method it picks, what it leaves behind."""

import copy
from functools import partial

import pytest
import torch
from gradients.comparison import Results, assert_equal, make_case, plain_loop
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from ddas_gpu.gradients import METHODS, PolicyGradients
from ddas_gpu.models import build


def small_case(**options):
    torch.manual_seed(0)
    return make_case(build("wrn-10-1", 5), **options)


def run(case, method="auto", model=None, **options):
    model = copy.deepcopy(case.model) if model is None else model
    gradients = PolicyGradients(
        model, case.loss_fn, case.images, case.targets, case.weights, method, **options
    )
    results = Results(
        gradients.losses,
        gradients.weighted(),
        gradients.dot(case.direction),
        dict(model.named_buffers()),
    )
    return results, gradients


@pytest.mark.parametrize("method", METHODS)
def test_every_method_by_name(method):
    case = small_case()
    assert_equal(run(case, method)[0], plain_loop(case))


@pytest.mark.parametrize(("old", "new"), [("layerwise", "fast"), ("jvp", "lean")])
def test_old_names_mean_what_they_have_become(old, new):
    case = small_case()
    results, gradients = run(case, old)
    assert gradients.plan.method == new
    assert_equal(results, plain_loop(case))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "weights",
    [
        (0.7, 0.1, 0.0, 0.2),
        (0.0, 0.0, 0.0, 0.0),
        (0.6, 1e-30, 0.4, 1e-6),
        (0.0, 0.5, 0.0, 0.5),
        (0.3, -0.9, 0.3, 0.3),
        (1e-12, 1e-12, 3e-12, 0.0),
    ],
)
def test_any_weights(weights, method):
    case = small_case()
    case.weights = torch.tensor(weights, dtype=torch.float64)
    results, _ = run(case, method)
    expected = plain_loop(case)
    torch.testing.assert_close(results.dots, expected.dots, rtol=1e-9, atol=0)
    largest = max(gradient.abs().max() for gradient in expected.weighted.values())
    for name, gradient in expected.weighted.items():
        assert (results.weighted[name] - gradient).abs().max() <= 1e-9 * largest


@pytest.mark.parametrize("method", METHODS)
def test_calls_in_any_order_and_number(method):
    case = small_case()
    expected = plain_loop(case)
    model = copy.deepcopy(case.model)
    gradients = PolicyGradients(
        model, case.loss_fn, case.images, case.targets, case.weights, method
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    dots = gradients.dot(case.direction)
    weighted = gradients.weighted()
    parts = dict(gradients.weighted_parts())
    assert parts.keys() == weighted.keys()
    assert all(torch.equal(parts[name], weighted[name]) for name in parts)
    again = gradients.dot(case.direction)
    results = Results(gradients.losses, weighted, dots, dict(model.named_buffers()))
    assert_equal(results, expected)
    torch.testing.assert_close(again, dots, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradients.dot(case.direction), dots, rtol=1e-9, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_weighted_gradient_changed_in_place_does_not_falsify_products(method):
    case = small_case()
    expected = plain_loop(case)
    model = copy.deepcopy(case.model)
    gradients = PolicyGradients(
        model, case.loss_fn, case.images, case.targets, case.weights, method
    )
    for gradient in gradients.weighted().values():
        gradient.mul_(3.0)
    if gradients.plan.method == "fast":
        with pytest.raises(RuntimeError, match="changed in place before dot"):
            gradients.dot(case.direction)
    else:
        torch.testing.assert_close(gradients.dot(case.direction), expected.dots, rtol=1e-9, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_the_clean_batch_alone_is_a_case(method):
    case = small_case(count=2)
    case.images, case.weights = case.images[:1], case.weights[:1]
    assert_equal(run(case, method)[0], plain_loop(case))


@pytest.mark.parametrize("method", METHODS)
def test_works_where_gradients_are_switched_off(method):
    case = small_case()
    with torch.no_grad():
        results, _ = run(case, method)
    assert_equal(results, plain_loop(case))
    assert not any(g.requires_grad for g in results.weighted.values())
    assert not results.dots.requires_grad and not results.losses.requires_grad


@pytest.mark.parametrize("method", METHODS)
def test_running_statistics_are_updated_once_from_the_clean_batch(method):
    case = small_case()
    model = copy.deepcopy(case.model)
    clean = copy.deepcopy(case.model)
    clean(case.images[0])
    run(case, method, model)
    for (name, buffer), expected in zip(model.named_buffers(), clean.buffers(), strict=True):
        torch.testing.assert_close(buffer, expected, rtol=1e-12, atol=0)
        assert not name.endswith("num_batches_tracked") or buffer == 1
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("method", METHODS)
def test_an_exception_leaves_the_model_as_it_was(method):
    case = small_case()
    before = copy.deepcopy(case.model.state_dict())
    calls = []

    def failing_loss(outputs, targets):
        calls.append(outputs)
        if len(calls) == 3:
            raise KeyError("third version")
        return F.cross_entropy(outputs, targets)

    with pytest.raises(KeyError, match="third version"):
        PolicyGradients(case.model, failing_loss, case.images, case.targets, case.weights, method)
    for name, value in case.model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert torch.is_tensor(case.model(case.images[0]))  # no hook or mode is left behind
    assert run(case, method)[0].losses.shape == (4,)


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)
        self.drop = nn.Dropout(0.5)
        self.classifier = nn.Linear(16, 5)

    def forward(self, x):
        return self.classifier(self.drop(self.conv(x)).mean((2, 3)))


@pytest.mark.parametrize("method", METHODS)
def test_dropout_masks_are_drawn_once_and_repeat_by_seed(method):
    torch.manual_seed(0)
    case = make_case(Noisy())
    torch.manual_seed(5)
    expected = plain_loop(case)
    state = torch.get_rng_state()
    torch.manual_seed(5)
    results, gradients = run(case, method)
    assert torch.equal(torch.get_rng_state(), state)
    assert_equal(results, expected)
    torch.testing.assert_close(gradients.dot(case.direction), expected.dots, rtol=1e-9, atol=0)


class BigMap(nn.Module):
    """Nearly all parameters in a map no layer rule knows; or, if small, a conv beside it."""

    def __init__(self, small: bool):
        super().__init__()
        self.map = nn.Parameter(torch.randn(1 if small else 40, 3, 8, 8))
        self.conv = nn.Conv2d(3, 64 if small else 4, 5)
        self.classifier = nn.Linear(64 if small else 4, 5)

    def forward(self, x):
        x = x * self.map.mean(0)
        return self.classifier(self.conv(x).mean((2, 3)))


@pytest.mark.parametrize("small", [True, False])
def test_parameters_that_no_rule_covers(small):
    """They are rows where they fit into one gradient; else the versions run again."""
    torch.manual_seed(0)
    case = make_case(BigMap(small))
    results, gradients = run(case, "fast")
    assert "map" in (gradients.plan.rows if small else gradients.plan.again)
    assert_equal(results, plain_loop(case))


class NoisyMap(BigMap):
    def forward(self, x):
        return super().forward(F.dropout(x))


class OnlyPlain(nn.Module):
    """Does something that only ordinary backward passes allow for: `trick(model, images)`."""

    def __init__(self, trick):
        super().__init__()
        self.conv, self.drop = nn.Conv2d(3, 8, 3, padding=1), nn.Dropout(0.2)
        self.second, self.classifier = nn.Conv2d(8, 8, 3), nn.Linear(8, 5)
        self.trick = trick

    def features(self, x):
        return self.drop(self.second(self.conv(x).relu()))

    def forward(self, x):
        return self.classifier(self.trick(self, x).mean((2, 3)))


def checkpointed(model, x):
    return checkpoint(model.features, x, use_reentrant=False)


def offloaded(model, x):
    with torch.autograd.graph.save_on_cpu():
        return model.features(x)


def with_its_own_gradient(model, x):
    x = x.detach().requires_grad_()
    energy = model.conv(x).square().sum()
    (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
    return model.features(x + 0.1 * gradient)


def vectorised(model, x):
    return torch.vmap(lambda image: model.second(model.conv(image[None]))[0])(x)


def in_place(model, x):
    return model.features(x.sub_(0.1))


ONLY_PLAIN = {
    checkpointed: "checkpoints or offloads its activations",
    offloaded: "checkpoints or offloads its activations",
    with_its_own_gradient: "takes a gradient in its forward pass",
    vectorised: "uses torch.func",
    in_place: "changes its input in place",
}


@pytest.mark.parametrize("trick", ONLY_PLAIN)
def test_what_only_ordinary_passes_allow_for_takes_the_reference_way(trick):
    torch.manual_seed(0)
    case = make_case(OnlyPlain(trick))
    given = case.images.clone()
    torch.manual_seed(5)
    expected, case.images = plain_loop(case), given
    torch.manual_seed(5)
    results, gradients = run(case)
    assert_equal(results, expected)
    assert gradients.plan.method == "reference"
    said = f"(the only way for a network that {ONLY_PLAIN[trick]})"
    assert str(gradients.plan).endswith(said)


@pytest.mark.parametrize("method", ["fast", "lean"])
@pytest.mark.parametrize("trick", ONLY_PLAIN)
def test_another_way_that_was_asked_for_is_an_error_there(trick, method):
    sentence = f'OnlyPlain {ONLY_PLAIN[trick]}, which the {method} way .* gradients="reference"'
    with pytest.raises(ValueError, match=sentence):
        run(make_case(OnlyPlain(trick)), method)


class TwoPrecisions(nn.Module):
    """Its last layer computes in fewer bits than the others."""

    def __init__(self):
        super().__init__()
        self.conv, self.classifier = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)

    def forward(self, x):
        return self.classifier(self.conv(x).mean((2, 3)).float()).double()


@pytest.mark.parametrize("method", METHODS)
def test_parameters_of_several_types(method):
    torch.manual_seed(0)
    case = make_case(TwoPrecisions())
    case.model.classifier.float()
    case.direction = {
        name: v.to(case.model.get_parameter(name).dtype) for name, v in case.direction.items()
    }
    assert_equal(run(case, method)[0], plain_loop(case), 1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_an_error_of_the_network_is_all_that_is_said(method, capfd):
    case = small_case()
    case.images = case.images[:, :, :2]
    with pytest.raises(RuntimeError, match="expected input.* to have 3 channels"):
        run(case, method)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("small", [True, False])
def test_a_second_attempt_draws_the_same_random_numbers(small):
    torch.manual_seed(0)
    case = make_case(NoisyMap(small))
    torch.manual_seed(5)
    expected = plain_loop(case)
    state = torch.get_rng_state()
    torch.manual_seed(5)
    assert_equal(run(case)[0], expected)
    assert torch.equal(torch.get_rng_state(), state)


class Overwriting(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.classifier = nn.Linear(16, 5)

    def forward(self, x):
        x = x * 2
        y = self.conv(x)
        x.add_(1)
        return self.classifier((y * x.mean(1, keepdim=True)).mean((2, 3)))


@pytest.mark.parametrize("method", METHODS)
def test_a_layers_input_changed_in_place_is_an_error(method):
    case = make_case(Overwriting())
    with pytest.raises(RuntimeError, match="in ?place"):
        run(case, method)


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_with_a_penalty_on_the_parameters(method):
    case = small_case()
    model = copy.deepcopy(case.model)

    def loss_fn(model, outputs, targets):
        penalty = sum(p.square().sum() for p in model.parameters())
        return F.cross_entropy(outputs, targets) + 0.1 * penalty

    case.loss_fn = partial(loss_fn, model)
    results, _ = run(case, method, model)
    penalised = {name: 0.2 * p.detach() for name, p in case.model.named_parameters()}
    case.loss_fn = F.cross_entropy
    expected = plain_loop(case)
    dots = expected.dots + sum((penalised[n] * v).sum() for n, v in case.direction.items())
    torch.testing.assert_close(results.dots, dots, rtol=1e-9, atol=0)
    for name, gradient in expected.weighted.items():
        wanted = gradient + case.weights.sum() * penalised[name]
        torch.testing.assert_close(results.weighted[name], wanted, rtol=1e-9, atol=1e-9)


def test_float32_is_as_good_as_the_reference():
    case = small_case()
    truth = plain_loop(case)
    case.model, case.images = case.model.float(), case.images.float()
    case.direction = {name: v.float() for name, v in case.direction.items()}
    case.weights = case.weights.float()
    scale = truth.dots.abs().max()
    for method in METHODS:
        results, _ = run(case, method)
        assert results.dots.dtype == torch.float32
        assert ((results.dots - truth.dots).abs() / scale).max() < 1e-4


# What makes the host wait for a GPU, with a tensor on it as an argument or as the result.
WAITING = {
    torch.tensor,
    torch.Tensor.new_tensor,
    torch.Tensor.item,
    torch.Tensor.tolist,
    torch.Tensor.cpu,
    torch.Tensor.numpy,
    torch.Tensor.nonzero,
    torch.Tensor.__bool__,
}


class NoWaiting(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        on_meta = [leaf.is_meta for leaf in tree_leaves((args, found)) if torch.is_tensor(leaf)]
        assert function not in WAITING or not any(on_meta), function
        return found


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["wrn-10-1", "small"])
def test_nothing_waits_for_the_device(name, method):
    with torch.device("meta"):
        model = build(name, 5)
        images, labels = torch.empty(4, 8, 3, 16, 16), torch.zeros(8, dtype=torch.long)
    direction = {name: torch.empty_like(p) for name, p in model.named_parameters()}
    with NoWaiting():
        gradients = PolicyGradients(
            model, F.cross_entropy, images, labels, [0.4, 0.3, 0.2, 0.1], method
        )
        gradients.weighted()
        assert gradients.dot(direction).is_meta
    assert gradients.plan.folded == (4 if method in ("auto", "fast") else 1)


class TestWrongInput:
    def make(self, **changes):
        case = small_case()
        arguments = {
            "model": case.model,
            "loss_fn": F.cross_entropy,
            "images": case.images,
            "targets": case.targets,
            "weights": case.weights,
        }
        return PolicyGradients(**{**arguments, **changes})

    def test_method(self):
        with pytest.raises(ValueError, match=r"'quick'; there are: auto, fast, lean, reference"):
            self.make(method="quick")

    @pytest.mark.parametrize("shape", [(3, 3, 8, 8), (4, 0, 3, 8, 8), (0, 3, 3, 8, 8)])
    def test_images(self, shape):
        with pytest.raises(ValueError, match=str(shape).replace("(", r"\(").replace(")", r"\)")):
            self.make(images=torch.zeros(shape))

    def test_targets_per_version(self):
        with pytest.raises(ValueError, match="4 versions, targets 3"):
            self.make(targets=[torch.zeros(3)] * 3)

    def test_shared_targets(self):
        with pytest.raises(ValueError, match=r"batch size 3, targets have shape \(4,\)"):
            self.make(targets=torch.zeros(4, dtype=torch.long))

    @pytest.mark.parametrize("method", METHODS)
    def test_loss_per_image(self, method):
        with pytest.raises(ValueError, match=r"one number per batch \(shape \(\)\), got \(3,\)"):
            self.make(loss_fn=lambda y, t: F.cross_entropy(y, t, reduction="none"), method=method)

    def test_model_without_trainable_parameters(self):
        with pytest.raises(ValueError, match="WideResNet has no parameter"):
            self.make(model=small_case().model.requires_grad_(False))

    def test_weights(self):
        with pytest.raises(ValueError, match=r"4 versions, weights of shape \(3,\)"):
            self.make(weights=[1.0, 1.0, 1.0])

    def test_direction_names(self):
        direction = small_case().direction
        direction["more"] = direction.pop("classifier.bias")
        with pytest.raises(ValueError, match="missing: classifier.bias; unknown: more"):
            self.make().dot(direction)

    def test_direction_shape(self):
        direction = small_case().direction | {"classifier.bias": torch.zeros(6)}
        with pytest.raises(ValueError, match=r"'classifier.bias'\] has shape \(6,\)"):
            self.make().dot(direction)
