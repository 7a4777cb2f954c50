"""The public interface: what it accepts, which method it picks, what it leaves behind."""

import copy
import warnings

import pytest
import torch
from gradients.comparison import Results, assert_equal, make_case, plain_loop
from torch import nn
from torch.nn import functional as F

from ddas_gpu.gradients import METHODS, PolicyGradients
from ddas_gpu.gradients.forward_mode import ForwardModeGradients
from ddas_gpu.gradients.layerwise import LayerwiseGradients
from ddas_gpu.models import build


def small_case(**options):
    torch.manual_seed(0)
    return make_case(build("wrn-10-1", 5), **options)


def run(case, method="auto", model=None):
    model = copy.deepcopy(case.model) if model is None else model
    gradients = PolicyGradients(model, case.loss_fn, case.images, case.targets, method)
    results = Results(
        gradients.losses,
        gradients.weighted(case.weights),
        gradients.dot(case.direction),
        dict(model.named_buffers()),
    )
    return results, gradients


@pytest.mark.parametrize("method", METHODS)
def test_every_method_by_name(method):
    case = small_case()
    assert_equal(run(case, method)[0], plain_loop(case))


@pytest.mark.parametrize("method", METHODS)
def test_calls_in_any_order_and_number(method):
    case = small_case()
    expected = plain_loop(case)
    model = copy.deepcopy(case.model)
    gradients = PolicyGradients(model, case.loss_fn, case.images, case.targets, method)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    dots = gradients.dot(case.direction)
    other_weights = gradients.weighted(torch.zeros(4))
    assert all((gradient == 0).all() for gradient in other_weights.values())
    weighted = gradients.weighted(case.weights.tolist())
    again = gradients.dot(case.direction)
    results = Results(gradients.losses, weighted, dots, dict(model.named_buffers()))
    assert_equal(results, expected)
    torch.testing.assert_close(again, dots, rtol=1e-12, atol=0)


@pytest.mark.parametrize("method", METHODS)
def test_one_weight_alone_gives_that_versions_gradient(method):
    case = small_case()
    _, gradients = run(case, method)
    for version in range(4):
        own = gradients.weighted(F.one_hot(torch.tensor(version), 4))
        product = sum((own[name] * v).sum() for name, v in case.direction.items())
        torch.testing.assert_close(
            gradients.dot(case.direction)[version], product, rtol=1e-9, atol=0
        )


@pytest.mark.parametrize("method", METHODS)
def test_results_outlive_changes_to_them(method):
    case = small_case()
    _, gradients = run(case, method)
    first = gradients.weighted(case.weights)
    kept = {name: gradient.clone() for name, gradient in first.items()}
    for gradient in first.values():
        gradient.zero_()
    second = gradients.weighted(case.weights)
    for name in kept:
        torch.testing.assert_close(second[name], kept[name], rtol=1e-12, atol=1e-15)


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
        PolicyGradients(case.model, failing_loss, case.images, case.targets, method)
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
    assert_equal(
        Results(results.losses, gradients.weighted(case.weights), results.dots, {}), expected
    )


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


@pytest.mark.parametrize("method", ["auto", "layerwise"])
def test_unknown_layers_fall_back_to_jvp_and_say_so_once(method):
    torch.manual_seed(0)
    case = make_case(BigMap(small=False))
    model = copy.deepcopy(case.model)
    with pytest.warns(UserWarning, match=r"BigMap uses map.*jvp"):
        results, gradients = run(case, method, model)
    assert isinstance(gradients._gradients, ForwardModeGradients)
    assert_equal(results, plain_loop(case))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*BigMap.*")
        assert_equal(run(case, method, model)[0], plain_loop(case))


def test_unknown_layers_with_few_parameters_stay_fast():
    torch.manual_seed(0)
    case = make_case(BigMap(small=True))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*BigMap.*")
        results, gradients = run(case)
    assert isinstance(gradients._gradients, LayerwiseGradients)
    assert_equal(results, plain_loop(case))


class NoisyMap(BigMap):
    def forward(self, x):
        return super().forward(F.dropout(x))


@pytest.mark.filterwarnings("ignore:no layer rule")
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


class TestWrongInput:
    def make(self, **changes):
        case = small_case()
        arguments = {
            "model": case.model,
            "loss_fn": F.cross_entropy,
            "images": case.images,
            "targets": case.targets,
        }
        return PolicyGradients(**{**arguments, **changes})

    def test_method(self):
        with pytest.raises(ValueError, match=r"'fast'; there are: auto, jvp, layerwise, reference"):
            self.make(method="fast")

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
            self.make().weighted([1.0, 1.0, 1.0])

    def test_direction_names(self):
        direction = small_case().direction
        direction["more"] = direction.pop("classifier.bias")
        with pytest.raises(ValueError, match="missing: classifier.bias; unknown: more"):
            self.make().dot(direction)

    def test_direction_shape(self):
        direction = small_case().direction | {"classifier.bias": torch.zeros(6)}
        with pytest.raises(ValueError, match=r"'classifier.bias'\] has shape \(6,\)"):
            self.make().dot(direction)
