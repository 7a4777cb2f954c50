"""Products of every version's gradient with a direction, without the gradients."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ddas_gpu.gradients.layer_rules import call_with

Tensors = Mapping[str, torch.Tensor]

_no_forward_mode: WeakSet[nn.Module] = WeakSet()  # networks with an op without forward derivative


class Moving(NamedTuple):
    """The outputs of a network, flat, and how they change along a direction of its weights."""

    outputs: list[Any]
    tangents: list[torch.Tensor | None]  # None where the direction changes nothing
    form: TreeSpec
    rows: tuple[int]  # images


class OwnStatistics(TorchFunctionMode):
    """Batch norm in training mode takes the statistics of each of `parts` equal parts of a batch.

    Running statistics are left alone.
    """

    def __init__(self, parts: int) -> None:
        super().__init__()
        self._parts = parts

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is F.batch_norm:
            return self._batch_norm(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))

    def _batch_norm(
        self,
        input: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> torch.Tensor:
        if not training:
            affine = weight, bias, False, momentum, eps
            return F.batch_norm(input, running_mean, running_var, *affine)
        parts = input.chunk(self._parts)
        return torch.cat([F.batch_norm(x, None, None, weight, bias, True, 0.0, eps) for x in parts])


def version_products(
    model: nn.Module,
    loss_fn: Callable[[Any, Any], torch.Tensor],
    images: torch.Tensor,
    targets: Sequence[Any],
    state: Tensors,
    direction: Tensors,
) -> torch.Tensor:
    """(L+1,): g_l · direction in float64, from one pass over all versions of a batch.

    images (L+1, B, C, H, W) and targets, one entry per version, are those of `PolicyGradients`, and
    so is the result, at the parameters of `state`, {name: tensor}, which has the buffers too.
    Weights that `direction` does not name are constants. No gradient is computed:

        g_l · v = ⟨∂loss_l / ∂outputs_l, (∂outputs_l / ∂θ) · v⟩

    The tangents of the outputs come from one pass in forward mode, which costs three forward
    passes; where an op has no forward derivative, from a backward pass that is differentiated.
    Every version has its own statistics in `nn.BatchNorm`. Other layers must treat images one by
    one.
    """
    count, batch_size = images.shape[:2]
    with OwnStatistics(count):
        moving = _moving_outputs(model, images.flatten(0, 1), state, direction)
    for output, tangent in zip(moving.outputs, moving.tangents, strict=True):
        if tangent is not None and output.shape[:1] != (count * batch_size,):
            raise ValueError(
                "every output of the network needs one row per image: "
                f"{count * batch_size} images, but an output of the shape {tuple(output.shape)}"
            )
    return torch.stack(
        [
            _product(moving, loss_fn, targets[version], slice(first, first + batch_size))
            for version, first in enumerate(range(0, count * batch_size, batch_size))
        ]
    )


def _product(
    moving: Moving, loss_fn: Callable[[Any, Any], torch.Tensor], targets: Any, rows: slice
) -> torch.Tensor:
    """Return ⟨∂loss / ∂outputs, tangents⟩ of one version."""
    leaves, pairs = [], []
    for output, tangent in zip(moving.outputs, moving.tangents, strict=True):
        if tangent is None:  # such as a number, or what does not depend on the weights
            rowed = torch.is_tensor(output) and output.shape[:1] == moving.rows
            leaves.append(output[rows] if rowed else output)
        else:
            leaves.append(output[rows].detach().requires_grad_())
            pairs.append((leaves[-1], tangent[rows]))
    with torch.enable_grad():
        loss = loss_fn(tree_unflatten(leaves, moving.form), targets)
    cotangents = torch.autograd.grad(loss, [leaf for leaf, _ in pairs], allow_unused=True)
    products = [
        (cotangent.double() * tangent).sum()
        for (_, tangent), cotangent in zip(pairs, cotangents, strict=True)
        if cotangent is not None  # an output that the loss does not use
    ]
    return torch.stack(products).sum()


def _moving_outputs(
    model: nn.Module, inputs: torch.Tensor, state: Tensors, direction: Tensors
) -> Moving:
    # Only the plain attention has both forward and second derivatives.
    with sdpa_kernel(SDPBackend.MATH):
        if model not in _no_forward_mode:
            # Buffers are written to: keep those that the other way would start from.
            copies = {name: value.clone() for name, value in state.items() if name not in direction}
            try:
                return _forward_mode(model, inputs, {**state, **copies}, direction)
            except (NotImplementedError, RuntimeError) as error:
                if not _lacks_forward_mode(error):
                    raise
                _no_forward_mode.add(model)
        return _twice_backward(model, inputs, state, direction)


def _lacks_forward_mode(error: Exception) -> bool:
    text = str(error).lower()
    return "forward ad" in text or "forward mode" in text or "jvp" in text


def _forward_mode(
    model: nn.Module, inputs: torch.Tensor, state: Tensors, direction: Tensors
) -> Moving:
    with torch.no_grad(), forward_ad.dual_level():
        duals = {
            name: forward_ad.make_dual(state[name].detach(), tangent)
            for name, tangent in direction.items()
        }
        leaves, form = tree_flatten(call_with(model, {**state, **duals}, inputs))
        pairs = [
            forward_ad.unpack_dual(leaf) if torch.is_tensor(leaf) else (leaf, None)
            for leaf in leaves
        ]
    outputs, tangents = zip(*pairs, strict=True)
    return Moving(list(outputs), list(tangents), form, (len(inputs),))


def _twice_backward(
    model: nn.Module, inputs: torch.Tensor, state: Tensors, direction: Tensors
) -> Moving:
    """J · v as the derivative of (uᵀ J) · v in u, which is linear in u."""
    weights = {name: state[name].detach().requires_grad_() for name in direction}
    with torch.enable_grad():
        leaves, form = tree_flatten(call_with(model, {**state, **weights}, inputs))
        moved = [torch.is_tensor(leaf) and leaf.requires_grad for leaf in leaves]
        outputs = [leaf for leaf, moves in zip(leaves, moved, strict=True) if moves]
        u = [torch.zeros_like(output, requires_grad=True) for output in outputs]
        parts = torch.autograd.grad(
            outputs, list(weights.values()), u, create_graph=True, allow_unused=True
        )
        terms = [
            (part * direction[name]).sum()
            for name, part in zip(weights, parts, strict=True)
            if part is not None
        ]
        product = torch.stack(terms).sum()
        found = iter(torch.autograd.grad(product, u, allow_unused=True))
    tangents = [next(found) if moves else None for moves in moved]
    return Moving([_detached(leaf) for leaf in leaves], tangents, form, (len(inputs),))


def _detached(leaf: Any) -> Any:
    return leaf.detach() if torch.is_tensor(leaf) else leaf
