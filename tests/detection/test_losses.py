"""The detection loss against its formulas, written out."""

from __future__ import annotations

import math

import pytest
import torch

from ddas_gpu.detection.losses import (
    ALPHA,
    BACKGROUND,
    BETA,
    GAMMA,
    IGNORED,
    detection_loss,
    focal_loss,
)


def by_hand(logits: torch.Tensor, classes: torch.Tensor) -> float:
    """The paper's formula 5, one number at a time."""
    total = 0.0
    for row, label in zip(logits.tolist(), classes.tolist(), strict=True):
        if label == IGNORED:
            continue
        for number, logit in enumerate(row):
            p = 1 / (1 + math.exp(-logit))
            p_t, alpha_t = (p, ALPHA) if number == label else (1 - p, 1 - ALPHA)
            total -= alpha_t * (1 - p_t) ** GAMMA * math.log(p_t)
    return total


def test_focal_loss():
    torch.manual_seed(0)
    logits = 3 * torch.randn(6, 4, dtype=torch.float64)
    classes = torch.tensor([0, BACKGROUND, 3, IGNORED, 1, BACKGROUND])
    expected = by_hand(logits, classes)
    assert math.isclose(focal_loss(logits, classes).item(), expected, rel_tol=1e-12)


def test_focal_loss_of_certainties_is_finite():
    logits = torch.tensor([[200.0, -200.0]], requires_grad=True)
    loss = focal_loss(logits, torch.tensor([1]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.isfinite() and gradient.isfinite().all()
    # Both wrong by 200: α · 200 for the class there, (1 - α) · 200 for the class not there.
    assert math.isclose(loss.item(), 200.0, rel_tol=1e-5)


def test_ignored_anchors_have_no_gradient():
    torch.manual_seed(0)
    predictions = {
        "logits": torch.randn(1, 3, 2, requires_grad=True),
        "deltas": torch.randn(1, 3, 4, requires_grad=True),
    }
    targets = {
        "classes": torch.tensor([[1, BACKGROUND, IGNORED]]),
        "deltas": torch.zeros(1, 3, 4),
    }
    detection_loss(predictions, targets).backward()
    assert predictions["logits"].grad[0].any(-1).tolist() == [True, True, False]
    assert predictions["deltas"].grad[0].any(-1).tolist() == [True, False, False]


def test_the_loss_is_per_anchor_of_an_object():
    torch.manual_seed(0)
    logits, deltas = torch.randn(2, 3, 2).double(), torch.randn(2, 3, 4).double()
    classes = torch.tensor([[1, BACKGROUND, 0], [BACKGROUND, BACKGROUND, 1]])
    wanted = torch.randn(2, 3, 4).double()
    of_boxes = 0.0
    for difference in (deltas - wanted)[classes >= 0].flatten().abs().tolist():
        straight = difference >= BETA
        of_boxes += difference - BETA / 2 if straight else difference**2 / (2 * BETA)
    expected = (by_hand(logits.flatten(0, 1), classes.flatten()) + of_boxes) / 3
    found = detection_loss(
        {"logits": logits, "deltas": deltas}, {"classes": classes, "deltas": wanted}
    )
    assert math.isclose(found.item(), expected, rel_tol=1e-12)


def test_a_batch_without_objects_still_teaches_background():
    logits = torch.zeros(1, 3, 2, requires_grad=True)
    deltas = torch.zeros(1, 3, 4, requires_grad=True)
    targets = {"classes": torch.full((1, 3), BACKGROUND), "deltas": torch.zeros(1, 3, 4)}
    loss = detection_loss({"logits": logits, "deltas": deltas}, targets)
    loss.backward()
    assert loss.item() == pytest.approx(6 * (1 - ALPHA) * 0.25 * math.log(2))
    assert (logits.grad > 0).all() and not deltas.grad.any()


def test_the_loss_does_not_wait_for_the_device():
    """Tensors without numbers refuse whatever has a size that depends on them."""
    with torch.device("meta"):
        predictions = {"logits": torch.empty(2, 9, 4), "deltas": torch.empty(2, 9, 4)}
        targets = {"classes": torch.empty(2, 9, dtype=torch.int64), "deltas": torch.empty(2, 9, 4)}
    assert detection_loss(predictions, targets).shape == ()


def test_an_anchor_without_an_object_may_predict_anything():
    deltas = torch.full((1, 2, 4), 1e38, requires_grad=True)
    targets = {"classes": torch.tensor([[BACKGROUND, 0]]), "deltas": torch.full((1, 2, 4), 1e38)}
    loss = detection_loss({"logits": torch.zeros(1, 2, 2), "deltas": deltas}, targets)
    (gradient,) = torch.autograd.grad(loss, deltas)
    assert loss.isfinite() and not gradient.any()
