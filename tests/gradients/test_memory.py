"""However many policies, no method but the reference holds more than one extra gradient."""

import pytest
import torch
from gradients.live_gradients import extra_gradient_copies

from ddas_gpu.models import build

# Losses and weights, L+1 numbers each, count as well.
FEW_NUMBERS = 0.002


@pytest.mark.parametrize("policies", [2, 5, 11])
@pytest.mark.parametrize("method", ["jvp", "layerwise"])
@pytest.mark.parametrize("name", ["small", "wrn-10-2"])
def test_at_most_one_extra_gradient(name, method, policies):
    torch.manual_seed(0)
    assert extra_gradient_copies(build(name, 10), policies, method, size=8) <= 1 + FEW_NUMBERS


@pytest.mark.parametrize("policies", [3, 11])
def test_passes_in_turn_keep_at_most_one_extra_gradient(policies, monkeypatch):
    monkeypatch.setattr("ddas_gpu.gradients.layerwise.folding_pays", lambda versions: False)
    copies = extra_gradient_copies(build("wrn-16-2", 10), policies, "layerwise", size=8)
    assert 0.3 <= copies <= 1 + FEW_NUMBERS


def test_the_measure_sees_the_gradients_of_the_reference():
    model = build("small", 10)
    for policies in (2, 5):
        copies = extra_gradient_copies(model, policies, "reference", size=8)
        assert copies == pytest.approx(policies + 1, abs=0.05)
