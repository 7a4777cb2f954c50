"""Holding a method against a loop that shares no code with it."""

import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional as F

from ddas_gpu.gradients.folded import FoldedGradients
from ddas_gpu.gradients.folding import folds
from ddas_gpu.gradients.plan import choose
from ddas_gpu.gradients.planned import PlannedGradients
from ddas_gpu.gradients.reference import ReferenceGradients
from ddas_gpu.gradients.survey import survey
from ddas_gpu.gradients.versions import Versions, Weighting

# The fast method has two ways to make its passes; here each of them is asked for by name.
METHODS = ("reference", "lean", "in turn", "folded")


def make_gradients(method: str, versions: Versions, weights: torch.Tensor):
    """The class behind a method, without the choices that `PolicyGradients` makes."""
    weighting = Weighting(weights.tolist())
    if method == "reference":
        return ReferenceGradients(versions, weighting.weights)
    found, kept = survey(versions), len(weighting.kept)
    way = "fast" if method in ("in turn", "folded") else method
    together = 3 if method == "folded" and can_fold(versions) else 1
    plan = choose(found, kept, way, None, folding=together)
    if plan.folded > 1:
        return FoldedGradients(versions, weighting, plan)
    return PlannedGradients(versions, weighting, plan)


def can_fold(versions: Versions) -> bool:
    """Whether versions of a batch can pass together."""
    found = survey(versions)
    return found.straight and not found.unfoldable and folds(versions)


@dataclass
class Case:
    """A model in float64 with data for it; everything is drawn from one seed."""

    model: torch.nn.Module
    images: torch.Tensor
    targets: object
    weights: torch.Tensor
    direction: dict[str, torch.Tensor]
    loss_fn: object = F.cross_entropy


def make_case(model, count=4, batch=3, size=8, classes=5, loss_fn=F.cross_entropy) -> Case:
    """`count` versions of very different statistics."""
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    scales = torch.arange(1.0, count + 1, dtype=torch.float64).view(-1, 1, 1, 1, 1)
    images = draw(count, batch, 3, size, size) * scales + 0.3 * scales
    targets = torch.randint(classes, (batch,), generator=generator)
    weights = torch.rand(count, generator=generator, dtype=torch.float64) + 0.1
    model = model.double()
    direction = {n: draw(p.shape) for n, p in model.named_parameters() if p.requires_grad}
    return Case(model, images, targets, weights, direction, loss_fn)


@dataclass
class Results:
    losses: torch.Tensor
    weighted: dict[str, torch.Tensor]
    dots: torch.Tensor
    buffers: dict[str, torch.Tensor]


def plain_loop(case: Case) -> Results:
    """A fresh copy of the model for every version, an ordinary backward pass on each."""
    losses, gradients, buffers = [], [], None
    for version, images in enumerate(case.images):
        model = copy.deepcopy(case.model)
        own = isinstance(case.targets, (list, tuple))
        loss = case.loss_fn(model(images), case.targets[version] if own else case.targets)
        loss.backward()
        losses.append(loss.detach())
        gradients.append(
            {
                name: torch.zeros_like(p) if p.grad is None else p.grad
                for name, p in model.named_parameters()
                if p.requires_grad
            }
        )
        buffers = dict(model.named_buffers()) if version == 0 else buffers
    weighted = {
        name: sum(w * g[name] for w, g in zip(case.weights, gradients, strict=True))
        for name in case.direction
    }
    dots = [sum((g[name] * v).sum() for name, v in case.direction.items()) for g in gradients]
    return Results(torch.stack(losses), weighted, torch.stack(dots), buffers)


def run_method(method: str, case: Case) -> tuple[Results, object]:
    """One search step's use of a method: the parameters change in place before `dot`."""
    model = copy.deepcopy(case.model)
    versions = Versions(model, case.loss_fn, case.images, case.targets)
    gradients = make_gradients(method, versions, case.weights)
    weighted = dict(gradients.weighted().parts())
    with torch.no_grad():
        for name in case.direction:
            model.get_parameter(name).mul_(-2.0).add_(1.0)
    dots = gradients.dot(case.direction)
    return Results(gradients.losses, weighted, dots, dict(model.named_buffers())), gradients


def assert_equal(results: Results, expected: Results, tolerance: float = 1e-9) -> None:
    """Relative errors of losses, weighted gradients, dot products and buffers."""
    torch.testing.assert_close(results.losses, expected.losses, rtol=tolerance, atol=0)
    assert list(results.weighted) == list(expected.weighted)
    # Relative to the whole gradient: a bias before a batch norm has gradient 0 but for rounding.
    largest = max(gradient.abs().max() for gradient in expected.weighted.values())
    assert largest > 0
    for name, gradient in expected.weighted.items():
        assert results.weighted[name].shape == gradient.shape
        error = (results.weighted[name] - gradient).abs().max()
        assert error <= tolerance * largest, f"{name}: {error / largest:.1e}"
    torch.testing.assert_close(results.dots, expected.dots, rtol=tolerance, atol=0)
    assert results.buffers.keys() == expected.buffers.keys()
    for name, buffer in expected.buffers.items():
        torch.testing.assert_close(results.buffers[name], buffer, rtol=tolerance, atol=0)


def check(method: str, case: Case):
    """Run a method on a case, hold it against the plain loop, return it for a closer look."""
    results, gradients = run_method(method, case)
    assert_equal(results, plain_loop(case))
    return gradients


def captured_names(gradients: PlannedGradients | FoldedGradients) -> set[str]:
    """The parameters whose layers' inputs and outputs a method has kept."""
    if isinstance(gradients, FoldedGradients):
        return {call.parameter for _, calls in gradients._groups for call in calls}
    calls = [*gradients._joined, *(call for calls in gradients._calls.values() for call in calls)]
    return {call.parameter for call in calls}
