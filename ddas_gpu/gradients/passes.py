"""Sending all versions through the model and back: one after the other, or all as one batch.

Both ways return

    losses (L+1,), kept (L+1, n), calls

where row l of `kept` is version l's gradient of the parameters that are not captured, flat and in
the model's order, and `calls` are the captured calls of the others.
"""

import torch
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_unflatten

from ddas_gpu.gradients.capture import Capture, CapturedCall
from ddas_gpu.gradients.versions import Tensors, Versions

Passed = tuple[torch.Tensor, torch.Tensor, list[CapturedCall]]

# Below this many parameters × pixels a version, what a pass costs is mostly the calls themselves,
# and one pass for all versions is faster. Measured on two CPU cores; a GPU does far more per call.
_FOLD_BELOW = {"cpu": 1e9, "cuda": 4e11}


class UsedElsewhere(Exception):
    """Captured parameters the loss also depends on in ways that no layer rule describes."""

    def __init__(self, names: set[str]):
        super().__init__(", ".join(sorted(names)))
        self.names = names


class CannotFold(Exception):
    """The model does not run under vmap: it draws random numbers, branches on values, ..."""


def folding_pays(versions: Versions) -> bool:
    """Whether one pass for all versions is likely to be faster than one for each."""
    parameters = sum(parameter.numel() for parameter in versions.parameters.values())
    _, batch_size, _, height, width = versions.images.shape
    limit = _FOLD_BELOW.get(versions.images.device.type, 0)
    return versions.count > 1 and parameters * batch_size * height * width < limit


def in_turn(versions: Versions, captured: Tensors) -> Passed:
    """A forward and a backward pass for each version; the tape of one version at a time."""
    parameters = _without(captured, versions.parameters)
    captures = [Capture(captured, slice(v, v + 1), folded=False) for v in range(versions.count)]
    kept = _zero_rows(versions.count, parameters, versions.images)
    losses, calls = [], []
    passes = versions.losses_in_turn(during=captures)
    for row, loss, capture in zip(kept.unbind(), passes, captures, strict=True):
        of_kept, of_captured = _gradients(loss, parameters, captured, capture.anchor)
        _require_none(of_captured)
        end = 0
        for gradient, parameter in zip(of_kept.values(), parameters.values(), strict=True):
            start, end = end, end + parameter.numel()
            if gradient is not None:
                row[start:end].view(parameter.shape).copy_(gradient)
        losses.append(loss.detach())
        calls.extend(capture.calls())
    return torch.stack(losses), kept, calls


def fold(versions: Versions, captured: Tensors) -> Passed:
    """One forward and one backward pass for all versions, folded into one batch by vmap.

    vmap gives every version its own row of what must not be shared: buffers, and the parameters
    whose gradients are kept. So batch norm has its own statistics in each version.
    """
    count = versions.count
    own_parameters = _without(captured, versions.parameters)
    parameters = {
        name: parameter.detach().expand(count, *parameter.shape).requires_grad_()
        for name, parameter in own_parameters.items()
    }
    buffers = {name: torch.stack([b] * count) for name, b in versions.copy_buffers().items()}
    capture = Capture(captured, slice(0, count), folded=True)

    def outputs_of_version(parameters: Tensors, buffers: Tensors, images: torch.Tensor):
        return functional_call(versions.model, {**parameters, **buffers}, (images,))

    with torch.enable_grad():
        try:
            with capture:
                outputs = torch.vmap(outputs_of_version)(parameters, buffers, versions.images)
        except (RuntimeError, ValueError) as error:
            # An error of the model's own will come again when the versions pass in turn.
            raise CannotFold(str(error)) from error
        outputs, structure = tree_flatten(outputs)
        outputs = zip(*[output.unbind() for output in outputs], strict=True)
        losses = torch.stack(
            [
                versions.loss_of(version, tree_unflatten(list(leaves), structure))
                for version, leaves in enumerate(outputs)
            ]
        )
        total = losses.sum()
    own = {**captured, **own_parameters}
    of_kept, of_own = _gradients(total, parameters, own, capture.anchor)
    _require_none({name: of_own[name] for name in captured})
    if any(gradient is not None for gradient in of_own.values()):
        raise CannotFold("the loss uses parameters of the model by itself")
    kept = _zero_rows(count, own_parameters, versions.images)
    end = 0
    for gradient, parameter in zip(of_kept.values(), own_parameters.values(), strict=True):
        start, end = end, end + parameter.numel()
        if gradient is not None:
            kept[:, start:end] = gradient.reshape(count, -1)
    versions.keep_buffers({name: buffer[0] for name, buffer in buffers.items()})
    return losses.detach(), kept, capture.calls()


def _without(captured: Tensors, parameters: Tensors) -> Tensors:
    return {name: p for name, p in parameters.items() if name not in captured}


def _zero_rows(count: int, parameters: Tensors, images: torch.Tensor) -> torch.Tensor:
    """(L+1, n) zeros, n numbers for all of these parameters."""
    like = next(iter(parameters.values()), images)
    return like.new_zeros(count, sum(parameter.numel() for parameter in parameters.values()))


def _gradients(
    loss: torch.Tensor, kept: Tensors, others: Tensors, anchor: torch.Tensor
) -> tuple[dict[str, torch.Tensor | None], dict[str, torch.Tensor | None]]:
    """Gradients of both groups of parameters, None where the loss does not reach."""
    leaves = [*kept.values(), *others.values(), anchor]
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    of_kept = dict(zip(kept, gradients, strict=False))
    return of_kept, dict(zip(others, gradients[len(kept) :], strict=False))


def _require_none(gradients: dict[str, torch.Tensor | None]) -> None:
    used = {name for name, gradient in gradients.items() if gradient is not None}
    if used:
        raise UsedElsewhere(used)
