"""Layers in all their configurations, in every method, against a plain loop."""

import copy

import pytest
import torch
from gradients.comparison import METHODS, can_fold, captured_names, check, make_case
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from ddas_gpu.gradients import PolicyGradients
from ddas_gpu.gradients.versions import Versions


class Pooled(nn.Module):
    """Any layers on images, averaged over the pixels, then a small classifier."""

    def __init__(self, *layers, channels):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, 5)

    def forward(self, x):
        return self.classifier(self.layers(x).flatten(2).mean(2))


def conv(*arguments, **options):
    return Pooled(nn.Conv2d(*arguments, **options), nn.Tanh(), channels=arguments[1])


def normalised(norm):
    return Pooled(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Conv2d(8, 8, 3), channels=8)


CAPTURED = {
    "stride": lambda: conv(3, 16, 3, stride=2),
    "two strides": lambda: conv(3, 16, 3, stride=(2, 1), padding=(0, 2)),
    "dilation": lambda: conv(3, 16, 3, dilation=2, padding=2),
    "groups": lambda: conv(3, 48, 3, groups=3),
    "grouped, strided, dilated": lambda: conv(3, 48, 3, 2, 1, 2, groups=3),
    "1x1": lambda: Pooled(nn.Conv2d(3, 24, 1), nn.Conv2d(24, 24, 1), channels=24),
    "no bias": lambda: conv(3, 16, 3, bias=False),
    "oblong kernel": lambda: conv(3, 16, (1, 5)),
    "padding same": lambda: conv(3, 16, 3, padding="same", dilation=2),
    "padding valid": lambda: conv(3, 16, 3, padding="valid"),
    "reflected padding": lambda: conv(3, 16, 3, padding=2, padding_mode="reflect"),
    "circular padding": lambda: conv(3, 16, 3, padding=1, padding_mode="circular"),
    "conv1d": lambda: Pooled(nn.Flatten(2), nn.Conv1d(3, 16, 5, 2), channels=16),
    "conv3d": lambda: Pooled(nn.Unflatten(1, (1, 3)), nn.Conv3d(1, 16, (2, 3, 3)), channels=16),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 9), nn.Tanh(), nn.Linear(9, 5)),
    "linear on many axes": lambda: nn.Sequential(
        nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 2), nn.Flatten(), nn.Linear(48, 5)
    ),
    "in-place ReLU on a layer's output": lambda: Pooled(
        nn.Conv2d(3, 8, 3), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3), channels=8
    ),
    "batch norm": lambda: normalised(nn.BatchNorm2d(8)),
    "batch norm without affine": lambda: normalised(nn.BatchNorm2d(8, affine=False)),
    "batch norm without statistics": lambda: normalised(
        nn.BatchNorm2d(8, track_running_stats=False)
    ),
    "batch norm, other momentum": lambda: normalised(nn.BatchNorm2d(8, momentum=0.7)),
    "group norm": lambda: normalised(nn.GroupNorm(2, 8)),
    "layer norm": lambda: normalised(nn.LayerNorm([6])),
    "instance norm": lambda: normalised(nn.InstanceNorm2d(8, affine=True)),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layer", CAPTURED)
def test_layers_the_fast_way_knows(layer, method):
    torch.manual_seed(0)
    model = CAPTURED[layer]()
    gradients = check(method, make_case(model))
    if method in ("in turn", "folded"):
        largest = max(model.named_parameters(), key=lambda item: item[1].numel())[0]
        assert largest in captured_names(gradients)


class Head(nn.Module):
    """A detector's shape: one head on several levels, outputs in a list and a tuple."""

    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 6, 1))

    def forward(self, x):
        levels = [self.body(x), F.max_pool2d(self.body(x), 2)]
        outputs = [self.head(level) for level in levels]
        return [output[:, :2] for output in outputs], tuple(output[:, 2:] for output in outputs)


def detection_loss(outputs, targets):
    classes, boxes = outputs
    loss = sum((level.mean((2, 3)) - targets["class"]).abs().mean() for level in classes)
    return loss + sum(F.smooth_l1_loss(level.mean((2, 3)), targets["box"]) for level in boxes)


@pytest.mark.parametrize("per_version", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_head_on_several_levels_with_structured_outputs(method, per_version):
    torch.manual_seed(0)
    case = make_case(Head(), loss_fn=detection_loss)
    targets = [
        {"class": torch.randn(3, 2).double(), "box": torch.randn(3, 4).double()} for _ in range(4)
    ]
    case.targets = targets if per_version else targets[0]
    gradients = check(method, case)
    if method in ("in turn", "folded"):
        assert "head.0.weight" in captured_names(gradients)


class Tied(nn.Module):
    """Two modules, one weight."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.first = nn.Conv2d(8, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.second.weight = self.first.weight
        self.classifier = nn.Linear(8, 5)

    def forward(self, x):
        x = self.second(F.relu(self.first(self.stem(x))))
        return self.classifier(x.mean((2, 3)))


class OwnFunctional(nn.Module):
    """A user's layer: functions of torch on parameters of its own."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(8, 3, 3, 3))
        self.gain = nn.Parameter(torch.randn(()))
        self.classifier = nn.Linear(8, 5)

    def forward(self, x):
        x = F.conv2d(x, self.kernel, stride=2) * self.gain.exp()
        return self.classifier(x.mean((2, 3)))


class UsedTwoWays(Tied):
    """A weight that a convolution uses, and its own penalty besides."""

    def forward(self, x):
        return super().forward(x) + self.stem.weight.square().sum() + self.first.weight.sum()


class Statistics(nn.Module):
    """Mixes the images of a batch without being a batch norm."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.classifier = nn.Linear(8, 5)

    def forward(self, x):
        x = self.conv(x)
        return self.classifier((x / x.std(0, keepdim=True)).mean((2, 3)))


class TokensFirst(nn.Module):
    """Has the images of a batch in the second axis, where folded versions are not side by side."""

    def __init__(self):
        super().__init__()
        self.first, self.classifier = nn.Linear(3, 16), nn.Linear(16, 5)

    def forward(self, x):
        return self.classifier(self.first(x.flatten(2).permute(2, 0, 1)).tanh().mean(0))


class PartlyUnused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = conv(3, 16, 3)
        self.unused = nn.Conv2d(3, 16, 3)

    def forward(self, x):
        self.unused(x)
        return self.used(x)


class NeverUsed(nn.Module):
    """A layer that the forward pass leaves out, and one that it runs without gradients."""

    def __init__(self):
        super().__init__()
        self.frozen, self.used = nn.Conv2d(3, 3, 3), conv(3, 16, 3)
        self.extra = nn.Linear(3, 3)

    def forward(self, x):
        with torch.no_grad():
            x = self.frozen(x)
        return self.used(x)


class TwoNames(nn.Module):
    """A layer that is called twice, and that the model has as an attribute and in a list."""

    def __init__(self):
        super().__init__()
        self.stem, self.layer = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.layers = nn.Sequential(self.stem, nn.Tanh(), self.layer, nn.Tanh(), self.layer)
        self.classifier = nn.Linear(8, 5)

    def forward(self, x):
        return self.classifier(self.layers(x).mean((2, 3)))


class ReplacedBuffer(nn.Module):
    """Tracks a mean in a buffer that every pass gives a new tensor."""

    def __init__(self):
        super().__init__()
        self.used = conv(3, 16, 3)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean((0, 2, 3))
        return self.used(x)


class OfAParameter(nn.Module):
    """A layer whose input is a parameter, which the optimizer changes before the products."""

    def __init__(self):
        super().__init__()
        self.used, self.token = conv(3, 16, 3), nn.Parameter(torch.randn(1, 64))
        self.embed = nn.Linear(64, 5)

    def forward(self, x):
        return self.used(x) + self.embed(self.token)


OWN = [
    Tied,
    OwnFunctional,
    Statistics,
    TokensFirst,
    PartlyUnused,
    NeverUsed,
    TwoNames,
    ReplacedBuffer,
    OfAParameter,
]


class Rectified(nn.Module):
    """Batch norm and ReLU; `after` makes the features of what they return."""

    def __init__(self, after, relu=F.relu):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.classifier = nn.Conv2d(8, 8, 1), nn.Linear(8, 5)
        self.after, self.relu = after, relu

    def forward(self, x):
        normed = self.norm(self.conv(x))
        features = self.after(self, normed, self.relu(normed))
        return self.classifier(features.mean((2, 3)))


def once(model, normed, rectified):
    return model.second(rectified)


def branching(model, normed, rectified):
    return model.second(rectified) * rectified


def beside(model, normed, rectified):
    return model.second(rectified) + 0.5 * normed


def beside_noise(model, normed, rectified):
    return beside(model, normed, F.dropout(rectified))


def twice(model, normed, rectified):
    return model.second(rectified) + normed.relu()


RECTIFIED = {
    "once": (lambda: Rectified(once), True),
    "in place": (lambda: Rectified(once, nn.ReLU(inplace=True)), True),
    "by name": (lambda: Rectified(once, lambda x: F.relu(x, inplace=True)), True),
    "keyword": (lambda: Rectified(once, lambda x: F.relu(input=x)), True),
    "without a gradient": (lambda: Rectified(beside, torch.no_grad()(torch.relu_)), True),
    "method": (lambda: Rectified(once, torch.Tensor.relu), True),
    "method, in place": (lambda: Rectified(once, torch.Tensor.relu_), True),
    "output used twice": (lambda: Rectified(branching), True),
    "of a changed tensor": (lambda: Rectified(once, lambda x: F.relu(x.mul_(1.5).add_(0.1))), True),
    "leaky": (lambda: Rectified(once, F.leaky_relu), True),
    "input used too": (lambda: Rectified(beside), False),
    "input used too, in place": (lambda: Rectified(beside, nn.ReLU(inplace=True)), True),
    "twice": (lambda: Rectified(twice), False),
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("case", RECTIFIED)
def test_relu_after_batch_norm(case, channels_last):
    torch.manual_seed(0)
    make, together = RECTIFIED[case]
    made = make_case(make())
    if channels_last:
        made.model.to(memory_format=torch.channels_last)
    versions = Versions(made.model, made.loss_fn, made.images, made.targets)
    assert can_fold(versions) is together
    check("folded", made)


def test_an_output_of_batch_norm_that_is_returned_is_not_overwritten():
    class Both(Rectified):
        def forward(self, x):
            normed = self.norm(self.conv(x))
            return self.classifier(F.relu(normed).mean((2, 3))), normed

    def loss(outputs, labels):
        return F.cross_entropy(outputs[0], labels) + outputs[1].square().mean()

    torch.manual_seed(0)
    case = make_case(Both(once), loss_fn=loss)
    versions = Versions(case.model, case.loss_fn, case.images, case.targets)
    assert not can_fold(versions)
    check("folded", case)


def test_an_output_of_relu_changed_in_place_is_the_error_that_it_is_without_us():
    def changed(model, normed, rectified):
        return model.second(rectified.add_(1))

    torch.manual_seed(0)
    case = make_case(Rectified(changed))
    with pytest.raises(RuntimeError, match="inplace operation"):
        PolicyGradients(
            case.model, case.loss_fn, case.images, case.targets, case.weights, method="fast"
        )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", OWN)
def test_models_of_the_users_own(model, method):
    torch.manual_seed(0)
    check(method, make_case(model()))


@pytest.mark.parametrize(
    ("model", "together"),
    [
        (lambda: normalised(nn.BatchNorm2d(8)), True),
        (Tied, True),
        (Statistics, False),
        (TokensFirst, False),
        (lambda: normalised(nn.GroupNorm(2, 8)), False),  # no rule for its weights
        (lambda: Pooled(nn.Conv2d(3, 8, 3), nn.Dropout(), channels=8), False),
        (lambda: Rectified(beside_noise), False),  # which ends the pass after it has drawn
    ],
)
def test_versions_pass_together_only_where_nothing_mixes_them(model, together):
    torch.manual_seed(0)
    case = make_case(model())
    versions = Versions(case.model, case.loss_fn, case.images, case.targets)
    before = torch.get_rng_state(), copy.deepcopy(case.model.state_dict())
    assert can_fold(versions) is together
    assert torch.equal(torch.get_rng_state(), before[0])
    for name, value in case.model.state_dict().items():
        assert torch.equal(value, before[1][name])


@pytest.mark.parametrize("method", ["lean", "in turn"])
def test_a_weight_used_outside_layer_rules_is_not_captured(method):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 3, 9, padding=4), nn.Conv2d(3, 3, 9, padding=4), UsedTwoWays()
    )
    case = make_case(model, count=2, classes=5)
    gradients = check(method, case)
    assert captured_names(gradients) <= {"0.weight", "1.weight", "2.classifier.weight"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("frozen", ["layers.0.weight", "layers.1.weight", "layers.0.bias"])
def test_frozen_parameters(frozen, method):
    torch.manual_seed(0)
    model = normalised(nn.BatchNorm2d(8))
    model.get_parameter(frozen).requires_grad_(False)
    check(method, make_case(model))


@pytest.mark.parametrize("method", METHODS)
def test_batch_norm_in_eval_mode(method):
    torch.manual_seed(0)
    model = normalised(nn.BatchNorm2d(8))
    model.layers[1].running_mean.uniform_()
    model.layers[1].running_var.uniform_(0.5, 2)
    check(method, make_case(model.eval()))


@pytest.mark.parametrize("method", ["reference", "lean", "in turn"])
def test_cumulative_batch_norm(method):
    torch.manual_seed(0)
    model = normalised(nn.BatchNorm2d(8, momentum=None))
    model(torch.randn(4, 3, 8, 8))
    check(method, make_case(model))


@pytest.mark.parametrize("method", METHODS)
def test_channels_last_and_strided_inputs(method):
    torch.manual_seed(0)
    case = make_case(normalised(nn.BatchNorm2d(8)).to(memory_format=torch.channels_last))
    case.images = case.images.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    case.direction = {
        name: torch.stack([v, -v], dim=-1)[..., 0] for name, v in case.direction.items()
    }
    check(method, case)


@settings(max_examples=25, deadline=None)
@given(
    groups=st.sampled_from([1, 3]),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    bias=st.booleans(),
    count=st.integers(1, 4),
    batch=st.integers(1, 3),
)
def test_any_convolution(groups, kernel, stride, padding, dilation, bias, count, batch):
    torch.manual_seed(0)
    model = conv(3, 24, kernel, stride, padding, dilation, groups, bias)
    case = make_case(model, count=max(count, 2), batch=batch, size=7)
    for method in ("lean", "in turn", "folded"):
        check(method, case)
