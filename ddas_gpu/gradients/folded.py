"""The fast way for small models: all versions in one pass, folded into one batch by vmap.

vmap gives every version its own row of what must not be shared: buffers, and the parameters that
are not the weight of a layer. So batch norm has its own statistics in each version. The weights
are shared: their gradient comes out as the weighted sum, and their layers' inputs and cotangents
are kept for the products.
"""

from typing import Any

import torch
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_unflatten

from ddas_gpu.gradients.capture import Capture, CapturedCall
from ddas_gpu.gradients.layer_rules import inner
from ddas_gpu.gradients.survey import Survey
from ddas_gpu.gradients.versions import Tensors, Versions, Weighting

# Below this many multiplications per version's forward pass, what a pass costs is mostly the calls
# themselves. Measured on two CPU cores; a GPU does far more per call.
_FOLD_BELOW = {"cpu": 1e8, "cuda": 1e11}


class CannotFold(Exception):
    """The model does not run under vmap: it draws random numbers, branches on values, ..."""


def folding_pays(versions: Versions, survey: Survey) -> bool:
    """Whether one pass for all versions is likely to be faster than one for each."""
    limit = _FOLD_BELOW.get(versions.images.device.type, 0)
    plain = versions.autocast_dtype is None and versions.count > 1
    return plain and sum(survey.work.values()) < limit


class FoldedGradients:
    """g_l of all versions from one pass; `dot` is one call per layer.

    captured   the parameters that are weights of layers, and nothing else
    """

    def __init__(self, versions: Versions, weighting: Weighting, captured: tuple[str, ...]):
        self._weighting, self._count = weighting, versions.count
        leaves = versions.parameters
        own = {name: leaf for name, leaf in leaves.items() if name not in captured}
        shared = {name: leaves[name].detach().requires_grad_() for name in captured}
        rows = {
            name: leaf.detach().expand(self._count, *leaf.shape).requires_grad_()
            for name, leaf in own.items()
        }
        capture = Capture(leaves, shared, folded=True)
        with torch.enable_grad():
            losses, buffers = _losses(versions, leaves | rows, rows, capture)
            total = losses @ losses.new_tensor(weighting.weights)
        inputs = [*rows.values(), *shared.values(), *leaves.values()]
        gradients = torch.autograd.grad(total, inputs, allow_unused=True)
        if any(gradient is not None for gradient in gradients[len(rows) + len(shared) :]):
            raise CannotFold("a parameter is used in ways that no layer rule describes")
        versions.keep_buffers({name: buffer[0] for name, buffer in buffers.items()})
        self.losses = losses.detach()
        self._calls: list[CapturedCall] = capture.calls()
        self._keep(rows, dict(zip((*rows, *shared), gradients, strict=False)), leaves)

    def _keep(self, rows: Tensors, gradients: Tensors, leaves: Tensors) -> None:
        """Store the rows flat, (L+1, n), and the weighted gradient."""
        self._row_names = list(rows)
        parts = [
            (torch.zeros_like(rows[name]) if gradients[name] is None else gradients[name])
            for name in rows
        ]
        flat = [part.reshape(self._count, -1) for part in parts]
        self._rows = torch.cat(flat, 1) if flat else self.losses.new_zeros(self._count, 0)
        sums = self._rows.sum(0).split([part.shape[1] for part in flat])
        summed = dict(zip(rows, sums, strict=True)) if flat else {}
        self._total = {
            name: summed[name].view(leaf.shape)
            if name in summed
            else torch.zeros_like(leaf)
            if gradients[name] is None
            else gradients[name]
            for name, leaf in leaves.items()
        }
        self._written = {name: total._version for name, total in self._total.items()}

    def weighted(self) -> Tensors:
        """{name: Σ_l w_l g_l}."""
        return dict(self._total)

    @torch.no_grad()
    def dot(self, direction: Tensors) -> torch.Tensor:
        """(L+1,): g_l · direction."""
        first = self._first_to_compute()
        weights = self.losses.new_tensor(self._weighting.weights)[first:]
        flat = [direction[name].reshape(-1) for name in self._row_names]
        products = self._rows[first:] @ torch.cat(flat) if flat else torch.zeros_like(weights)
        for call in self._calls:
            products += call.dot_by_version(direction, self._count, first)
        products /= weights
        if first == 0:
            return products
        total = torch.stack([inner(g, direction[name]) for name, g in self._total.items()]).sum()
        solved = (total - weights @ products) / self._weighting.weights[0]
        return torch.cat([solved[None], products])

    def _first_to_compute(self) -> int:
        """1 where the clean batch's product follows from the others, else 0."""
        unchanged = all(self._written[n] == total._version for n, total in self._total.items())
        return 1 if self._weighting.solved == 0 and unchanged else 0


def _losses(
    versions: Versions, parameters: Tensors, rows: Tensors, capture: Capture
) -> tuple[torch.Tensor, Tensors]:
    """All losses (L+1,), and the buffers as each version has written them."""
    count = versions.count
    buffers = {name: torch.stack([b] * count) for name, b in versions.copy_buffers().items()}
    shared = {name: parameter for name, parameter in parameters.items() if name not in rows}

    def outputs_of_version(rows: Tensors, buffers: Tensors, images: torch.Tensor) -> Any:
        return functional_call(versions.model, {**shared, **rows, **buffers}, (images,))

    try:
        with capture:
            outputs = torch.vmap(outputs_of_version)(rows, buffers, versions.images)
    except (RuntimeError, ValueError) as error:
        # An error of the model's own will come again when the versions pass in turn.
        raise CannotFold(str(error)) from error
    outputs, structure = tree_flatten(outputs)
    by_version = zip(*[output.unbind() for output in outputs], strict=True)
    losses = [
        versions.loss_of(version, tree_unflatten(list(leaves), structure))
        for version, leaves in enumerate(by_version)
    ]
    return torch.stack(losses), buffers
