"""All methods are exact on every model of the project, batch norm in training mode."""

import pytest
import torch
from gradients.comparison import (
    METHODS,
    assert_equal,
    captured_names,
    make_case,
    plain_loop,
    run_method,
)

from ddas_gpu.models import build
from ddas_gpu.models.retinanet import RetinaNet


def _model(name: str) -> torch.nn.Module:
    torch.manual_seed(1)
    return build(name, num_classes=5)


# At these sizes batch norm still sees several values a channel in the last layers.
@pytest.mark.parametrize(("name", "size"), [("small", 16), ("wrn-10-1", 8), ("wrn-16-2", 8)])
def test_small_models_with_every_method(name, size):
    case = make_case(_model(name), size=size)
    expected = plain_loop(case)
    for method in METHODS:
        results, gradients = run_method(method, case)
        assert_equal(results, expected)
        if method in ("in turn", "folded"):
            assert captured_names(gradients)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("wrn-40-2", 8),
        ("wrn-28-10", 4),
        ("resnet-18", 32),
        ("resnet-50", 32),
        pytest.param("resnet-101", 32, marks=pytest.mark.slow),
        pytest.param("resnet-200", 32, marks=pytest.mark.slow),
    ],
)
def test_large_models(name, size):
    case = make_case(_model(name), count=3, size=size)  # with 2, all would fit in rows
    expected = plain_loop(case)
    for method in ("lean", "in turn"):
        results, gradients = run_method(method, case)
        assert_equal(results, expected)
        assert method == "lean" or captured_names(gradients)


@pytest.mark.parametrize(("name", "size"), [("shake-shake-8-2x8d", 8), ("shake-shake-26-2x96d", 4)])
def test_models_that_draw_random_numbers(name, size):
    case = make_case(_model(name), count=3, size=size)  # with 2, all would fit in rows
    torch.manual_seed(2)
    expected = plain_loop(case)
    for method in ("reference", "lean", "in turn"):
        torch.manual_seed(2)
        results, _ = run_method(method, case)
        assert_equal(results, expected)


def detector_loss(outputs, targets):
    return outputs["logits"].sigmoid().mean() + outputs["deltas"].square().mean()


@pytest.mark.parametrize("method", ["reference", "lean", "in turn"])
def test_detector_whose_heads_serve_all_levels(method):
    torch.manual_seed(1)
    case = make_case(RetinaNet(18, 3, channels=32), 3, 2, 64, loss_fn=detector_loss)
    results, _ = run_method(method, case)
    assert_equal(results, plain_loop(case))
