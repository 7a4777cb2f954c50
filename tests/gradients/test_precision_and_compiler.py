"""All methods under autocast and torch.compile, and a transformer of a user's own."""

import copy
from contextlib import nullcontext

import pytest
import torch
from gradients.comparison import METHODS, assert_equal, make_case, plain_loop, run_method
from gradients.vision_transformer import VisionTransformer
from torch import nn
from torch.nn import functional as F

from ddas_gpu.gradients import PolicyGradients
from ddas_gpu.models import build
from ddas_gpu.models.frozen_batch_norm import freeze_batch_norm

WAYS = ("fast", "lean", "reference")


def products(model, method, autocast=None, seed=0):
    """(losses, weighted gradient, products, |g| |v|) of a step in float32.

    The products are asked for outside of autocast.
    """
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(4, 8, 3, 16, 16, generator=generator)
    targets = torch.randint(5, (8,), generator=generator)
    model = copy.deepcopy(model)
    direction = {
        name: torch.randn(p.shape, generator=generator) * p.detach().std()
        for name, p in model.named_parameters()
    }
    with torch.autocast("cpu", autocast) if autocast else nullcontext():
        gradients = PolicyGradients(
            model, F.cross_entropy, images, targets, (0.6, 0.2, 0.1, 0.1), method
        )
    weighted = {name: gradient.clone() for name, gradient in gradients.weighted().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-2.0)
    length = sum(g.square().sum() for g in weighted.values()).sqrt()
    length *= sum(v.square().sum() for v in direction.values()).sqrt()
    return gradients.losses, weighted, gradients.dot(direction), length


# Errors relative to |g| |v|, a few roundings: bfloat16 has 8 bits, float16 has 11.
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 4e-3), (torch.float16, 5e-4)], ids=["bf16", "fp16"]
)
@pytest.mark.parametrize("method", ["fast", "lean"])
@pytest.mark.parametrize("name", ["wrn-10-1", "vit"])
def test_autocast_agrees_with_the_reference_under_autocast(name, method, dtype, tolerance):
    torch.manual_seed(0)
    model = build(name, 5) if name != "vit" else VisionTransformer(16, 4, 32, 2, 2, 5)
    losses, weighted, dots, length = products(model, "reference", dtype)
    ours = products(model, method, dtype)
    assert ours[2].dtype == torch.float32
    torch.testing.assert_close(ours[0], losses, rtol=1e-6, atol=0)
    assert (ours[2] - dots).abs().max() <= tolerance * length
    for name, gradient in weighted.items():
        assert ours[1][name].dtype == torch.float32
        error = (ours[1][name] - gradient).norm()
        assert error <= 0.05 * gradient.norm() + 1e-3 * length, name


class Regions(nn.Module):
    """Biases, a convolution that autocast is switched off for, and a batch norm after it."""

    def __init__(self, affine=True):
        super().__init__()
        self.stem, self.second = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3)
        self.norm, self.classifier = nn.BatchNorm2d(16, affine=affine), nn.Linear(16, 5)

    def forward(self, x):
        x = torch.tanh(self.stem(x))
        with torch.autocast("cpu", enabled=False):
            x = self.second(x.float())
        x = F.relu(self.norm(x.to(self.classifier(x.mean((2, 3))).dtype)))
        return self.classifier(x.mean((2, 3)))


TOGETHER = {
    "wrn-10-1": (lambda: build("wrn-10-1", 5), True),
    "detector's layers": (lambda: freeze_batch_norm(build("small", 5)), True),
    "autocast switched off inside": (Regions, True),
    "batch norm without weights": (lambda: Regions(affine=False), False),
}


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 4e-3), (torch.float16, 5e-4)], ids=["bf16", "fp16"]
)
@pytest.mark.parametrize("case", TOGETHER)
def test_versions_pass_together_under_autocast(case, dtype, tolerance):
    make, together = TOGETHER[case]
    torch.manual_seed(0)
    model = make()
    images, labels = torch.randn(4, 8, 3, 16, 16), torch.randint(5, (8,))
    weights, batch = (0.1, 0.5, 0.2, 0.2), (F.cross_entropy, images, labels)
    direction = {name: torch.randn_like(p) * 0.1 for name, p in model.named_parameters()}

    def step(method):
        with torch.autocast("cpu", dtype):
            return PolicyGradients(copy.deepcopy(model), *batch, weights, method)

    fast, reference = step("fast"), step("reference")
    assert fast.plan.folded == (4 if together else 1)
    torch.testing.assert_close(fast.losses, reference.losses, rtol=tolerance, atol=0)
    ours, theirs = fast.weighted(), reference.weighted()
    length = sum(g.square().sum() for g in theirs.values()).sqrt()
    error = sum((ours[name] - g).square().sum() for name, g in theirs.items()).sqrt()
    assert error <= 2 * tolerance * length
    assert {gradient.dtype for gradient in ours.values()} == {torch.float32}
    dots = fast.dot(direction)
    length *= sum(v.square().sum() for v in direction.values()).sqrt()
    assert (dots - reference.dot(direction)).abs().max() <= tolerance * length
    with torch.autocast("cpu", dtype):  # sums keep their 32 bits
        assert torch.equal(step("fast").dot(direction), dots)


def test_float16_keeps_small_cotangents():
    """Without a scale for the loss, cotangents of 1e-8 would all be rounded to 0."""

    class Faint(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)
            self.classifier = nn.Linear(8, 5)

        def forward(self, x):
            return self.classifier(self.conv(x).mean((2, 3))) * 1e-4

    torch.manual_seed(0)
    model = Faint()
    exact = products(model, "reference")[2]
    for method in WAYS:
        dots = products(model, method, torch.float16)[2]
        torch.testing.assert_close(dots, exact, rtol=0.05, atol=0.02 * exact.abs().max().item())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vision_transformer(method):
    torch.manual_seed(0)
    case = make_case(VisionTransformer(image=8, patch=4, width=16, depth=2, heads=2, classes=5))
    results, _ = run_method(method, case)
    assert_equal(results, plain_loop(case))


class Attention(nn.Module):
    """torch's own attention, whose weights are used where no layer rule looks."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.classifier = nn.Linear(16, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.classifier(self.attention(x, x, x, need_weights=False)[0].mean(1))


@pytest.mark.parametrize("method", ["reference", "lean", "in turn"])
def test_multihead_attention(method):
    torch.manual_seed(0)
    case = make_case(Attention())
    results, _ = run_method(method, case)
    assert_equal(results, plain_loop(case))


@pytest.mark.parametrize("whole", [True, False], ids=["whole model", "one block"])
def test_compiled_models(whole):
    torch.manual_seed(0)
    plain = build("small", 5).double()
    case = make_case(plain, size=16)
    expected = plain_loop(case)
    model = copy.deepcopy(plain)
    if whole:
        model = torch.compile(model, backend="aot_eager")
    else:
        model.blocks[1].compile(backend="aot_eager")
    prefix = "_orig_mod." if whole else ""
    direction = {prefix + name: v for name, v in case.direction.items()}
    start = copy.deepcopy(plain.state_dict())
    for method in WAYS:
        plain_parameters = {n.removeprefix(prefix): p for n, p in model.named_parameters()}
        buffers = {n.removeprefix(prefix): b for n, b in model.named_buffers()}
        with torch.no_grad():
            for name, tensor in {**plain_parameters, **buffers}.items():
                tensor.copy_(start[name])
        gradients = PolicyGradients(
            model, case.loss_fn, case.images, case.targets, case.weights, method
        )
        for name, gradient in gradients.weighted().items():
            wanted = expected.weighted[name.removeprefix(prefix)]
            torch.testing.assert_close(gradient, wanted, rtol=1e-9, atol=1e-12)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(-2.0)
        torch.testing.assert_close(gradients.dot(direction), expected.dots, rtol=1e-9, atol=0)
        assert not gradients.plan.pairs
