"""Total bytes: the lean way takes no more than the reference, and no more with more policies."""

import pytest
import torch
from gradients.live_bytes import LiveBytes, step_bytes
from gradients.live_gradients import extra_gradient_copies
from gradients.vision_transformer import VisionTransformer

from ddas_gpu.gradients.plan import size
from ddas_gpu.models import build

# Losses, weights and products: L+1 numbers each. They, too, are followed.
FEW_NUMBERS = 0.002


def model(name: str, device: str = "cpu") -> torch.nn.Module:
    with torch.device(device):
        if name == "vit":
            return VisionTransformer(image=32, patch=8, width=64, depth=3, heads=4, classes=10)
        return build(name, 10).to(memory_format=torch.channels_last)


def test_the_measure_sees_every_byte():
    with LiveBytes() as live:
        kept = torch.zeros(1000)
        kept.view(10, 100).add_(1)  # views and in-place operators make no storage
        for _ in range(3):
            torch.zeros(500, dtype=torch.float64)
        assert live.alive == 4000
    assert live.peak == 8000


def test_meta_tensors_count_as_real_ones_do():
    for method in ("reference", "fast", "lean"):
        real = step_bytes(model("wrn-10-2"), method, 3, 4, (32, 32))
        meta = step_bytes(model("wrn-10-2", "meta"), method, 3, 4, (32, 32))
        assert meta.peak == pytest.approx(real.peak, rel=0.05)


@pytest.mark.parametrize(
    ("name", "batch"),
    [("small", 8), ("wrn-10-2", 2), ("wrn-10-2", 16), ("resnet-18", 2), ("vit", 4)],
)
def test_lean_takes_no_more_than_the_reference_and_does_not_grow(name, batch):
    """Where gradients are most of the bytes, and where activations are."""
    network, lean = model(name), {}
    for policies in (2, 11) if name == "resnet-18" else (2, 3, 7, 11):
        lean[policies] = step_bytes(network, "lean", policies, batch, (32, 32)).peak
        reference = step_bytes(network, "reference", policies, batch, (32, 32)).peak
        assert lean[policies] <= reference
    assert lean[11] <= 1.02 * lean[2], {policies: size(peak) for policies, peak in lean.items()}


@pytest.mark.parametrize("policies", [2, 5, 11])
@pytest.mark.parametrize(("method", "copies"), [("fast", 1), ("lean", 1 + 1 / 8)])
@pytest.mark.parametrize("name", ["small", "wrn-10-2"])
def test_extra_gradients(name, method, copies, policies):
    """Beyond plain training: at most one; the lean way's one is θ_t, and there are a few rows."""
    found = extra_gradient_copies(build(name, 10), policies, method, size=8)
    assert found <= copies + FEW_NUMBERS


@pytest.mark.parametrize("policies", [3, 11])
def test_passes_in_turn_keep_at_most_one_extra_gradient(policies, monkeypatch):
    monkeypatch.setattr("ddas_gpu.gradients.policy_gradients.folds", lambda versions: False)
    copies = extra_gradient_copies(build("wrn-16-2", 10), policies, "fast", size=8)
    assert 0.3 <= copies <= 1 + FEW_NUMBERS


def test_the_measure_of_copies_sees_the_gradients_of_the_reference():
    network = build("small", 10)
    for policies in (2, 5):
        copies = extra_gradient_copies(network, policies, "reference", size=8)
        # Plain training has its scratch, too, which is not an extra gradient here.
        assert policies + 0.5 <= copies <= policies + 1.05


@pytest.mark.parametrize("method", ["fast", "lean", "reference"])
@pytest.mark.parametrize(
    ("name", "batch"),
    [("small", 8), ("wrn-10-2", 2), ("wrn-10-2", 16), ("resnet-18", 2), ("vit", 4)],
)
def test_predictions(name, batch, method):
    """What a plan says of the bytes it holds and of its peak is right to 25 %."""
    for policies in (2, 7):
        found = step_bytes(model(name), method, policies, batch, (32, 32))
        if method != "reference":
            assert found.plan.held == pytest.approx(found.held, rel=0.25)
        assert found.plan.peak == pytest.approx(found.peak, rel=0.25)


@pytest.mark.parametrize("name", ["small", "wrn-10-2"])
def test_the_check_of_the_first_step_takes_no_more_than_planned(name):
    """Under autocast it has 32 bits where the step has 16."""
    with torch.autocast("cpu", torch.bfloat16):
        first = step_bytes(model(name), "fast", 2, 16, (32, 32))
    assert first.plan.folded == 3
    assert first.plan.peak == pytest.approx(first.peak, rel=0.25)
