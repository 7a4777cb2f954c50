"""What is chosen for how much memory, and what is said about it."""

import copy
import itertools

import pytest
import torch
from gradients.comparison import make_case, plain_loop
from torch import nn
from torch.nn import functional as F

from ddas_gpu.gradients import PolicyGradients
from ddas_gpu.gradients.plan import choose, free_bytes, size
from ddas_gpu.gradients.survey import survey
from ddas_gpu.gradients.versions import Versions
from ddas_gpu.models import build


def plan(model, policies=3, batch=8, **options):
    images = torch.randn(policies + 1, batch, 3, 16, 16)
    targets = torch.zeros(batch, dtype=torch.long)
    weights = [1.0] * (policies + 1)
    return PolicyGradients(model, F.cross_entropy, images, targets, weights, **options).plan


def found(model, batch=8):
    images = torch.randn(2, batch, 3, 16, 16)
    targets = torch.zeros(batch, dtype=torch.long)
    return survey(Versions(model, F.cross_entropy, images, targets))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return build("wrn-10-2", 5)


def test_auto_takes_the_fastest_that_fits(model):
    together = plan(model)
    assert (together.method, together.folded) == ("fast", 4)
    assert plan(model, memory=together.peak) == together
    fewer = plan(model, memory=together.peak - 1)
    assert (fewer.method, fewer.folded) == ("fast", 3)
    found(model).folds = False  # as of a model that mixes the images of a batch
    in_turn = plan(model)
    assert (in_turn.method, in_turn.folded) == ("fast", 1)
    assert in_turn.others["lean"] < in_turn.peak < fewer.peak
    assert plan(model, memory=in_turn.peak - 1).method == "lean"
    assert plan(model, memory=1).method == "lean"


def test_every_method_says_the_same_of_the_others(model):
    """Also those that do not try whether versions can pass together."""
    plans = {method: plan(model, method=method) for method in ("lean", "reference", "fast")}
    assert plans["fast"].folded > 1
    for ours, other in itertools.permutations(plans, 2):
        assert plans[ours].others[other] == plans[other].peak


def test_a_method_that_was_asked_for_is_taken_whatever_it_takes(model):
    for method in ("fast", "lean", "reference"):
        assert plan(model, method=method, memory=1).method == method


@pytest.mark.parametrize("capture", [True, False])
def test_rows_are_at_most_one_gradient_and_few_beside_theta(model, capture):
    result = found(model)
    for way, kept in itertools.product(("fast", "lean"), (1, 2, 3, 7, 11)):
        chosen = choose(result, kept, way, None, capture=capture)
        rows = kept * sum(result.sizes[name] for name in chosen.rows)
        # θ_t is kept instead of rows, but for the few that make the lean way faster.
        assert rows <= result.gradient / (8 if chosen.again else 1)
        names = (*chosen.rows, *chosen.pairs, *chosen.again)
        assert sorted(names) == sorted(result.sizes)  # each once


def test_rows_are_the_weights_that_see_the_most_places(model):
    result = found(model)
    chosen = choose(result, 3, "fast", None)
    assert "stem.weight" in chosen.rows
    worth = {name: result.uses_per_weight(name) for name in result.sizes}
    left = [name for name in chosen.pairs if result.sizes[name] <= result.sizes["stem.weight"]]
    assert all(worth[name] <= worth["stem.weight"] for name in left)


def test_work_grows_as_memory_shrinks(model):
    result = found(model)
    fast, lean = (choose(result, 3, way, None) for way in ("fast", "lean"))
    assert fast.work < lean.work <= 3.0
    assert fast.peak > lean.peak


def test_the_sentence_names_all_ways(model):
    sentence = str(plan(model, method="lean"))
    assert sentence.startswith("lean gradients hold ")
    assert "\n" not in sentence
    for way in ("fast", "reference"):
        assert f"{way} " in sentence


def test_the_sentence_says_what_autocast_computes_in(model):
    with torch.autocast("cpu", torch.bfloat16):
        chosen = plan(model)
    assert str(chosen).startswith("fast gradients, computed in bfloat16, hold ")


def test_sizes_are_readable():
    assert [size(n) for n in (12, 1536, 9_800_000_000)] == ["12 B", "1.54 kB", "9.8 GB"]


def test_surveys_are_made_once_per_shape(model, monkeypatch):
    calls = []
    forward = type(model).forward
    monkeypatch.setattr(
        type(model), "forward", lambda self, x: calls.append(x.shape) or forward(self, x)
    )
    counts = []
    for batch in (8, 8, 4, 8):
        before = len(calls)
        plan(model, policies=2, batch=batch, method="fast")
        counts.append(len(calls) - before)
    # In the first step of a shape: once to survey, three times to compare a folded pass.
    assert counts[0] == counts[2] == counts[1] + 4
    assert counts[3] == counts[1]


class LooksAtValues(nn.Module):
    """Takes a branch by the numbers: no pass on tensors without numbers can follow."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.drop = nn.Dropout(0.5)
        self.classifier = nn.Linear(8, 5)

    def forward(self, x):
        x = self.conv(x)
        x = x if x.mean().item() > 100 else self.drop(x)
        return self.classifier(x.mean((2, 3)))


@pytest.mark.parametrize("method", ["fast", "lean"])
def test_models_that_need_numbers_are_surveyed_with_them(method):
    torch.manual_seed(0)
    case = make_case(LooksAtValues())
    torch.manual_seed(5)
    expected = plain_loop(case)
    state = torch.get_rng_state()
    torch.manual_seed(5)
    model = copy.deepcopy(case.model)
    gradients = PolicyGradients(
        model, case.loss_fn, case.images, case.targets, case.weights, method
    )
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(gradients.dot(case.direction), expected.dots, rtol=1e-9, atol=0)
    assert "conv.weight" in (*gradients.plan.rows, *gradients.plan.pairs, *gradients.plan.again)


def test_free_memory():
    assert free_bytes(torch.device("cpu")) > 1 << 20
    assert free_bytes(torch.device("meta")) is None
