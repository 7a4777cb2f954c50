"""The fast way where versions can pass together: groups of them, each as one batch.

No layer computes the gradient of its weight in the backward pass. From the inputs and output
cotangents come the rows of the parameters that the plan keeps as rows, version by version, and for
the others the weighted gradient of all versions of a group in one call, and later the products.
"""

import itertools
from functools import partial

import torch

from ddas_gpu.gradients.folding import CannotFold, FoldedPass, split
from ddas_gpu.gradients.layer_rules import FoldedCall, call_with
from ddas_gpu.gradients.plan import Plan
from ddas_gpu.gradients.versions import (
    CHANGED,
    Tensors,
    Versions,
    WeightedGradient,
    Weighting,
    full_precision,
)


class FoldedGradients:
    """g_l of groups of versions; `dot` is one call per layer and group."""

    def __init__(self, versions: Versions, weighting: Weighting, plan: Plan):
        if weighting.solved is None:
            raise ValueError("all weights are 0: no product follows from the others")
        self._versions, self._weighting, self._solved = versions, weighting, weighting.solved
        self._kept = {version: row for row, version in enumerate(weighting.kept)}
        leaves = versions.leaves()
        self._places = _places(leaves, plan.rows)
        width = sum(leaves[name].numel() for name in plan.rows)
        one = next(iter(leaves.values()))
        # (L, n), and the sum over all versions.
        self._rows, self._row_sum = one.new_zeros(len(self._kept), width), one.new_zeros(width)
        self._groups: list[tuple[range, list[FoldedCall]]] = []
        losses: list[torch.Tensor] = []
        for group in _groups(versions.count, plan.folded):
            losses += self._pass(group, leaves, plan)
        self.losses = torch.stack(losses)
        versions.keep_buffers()
        self._weighted = self._sum_up(leaves, plan)

    def _pass(self, group: range, leaves: Tensors, plan: Plan) -> list[torch.Tensor]:
        versions, factors = self._versions, self._weighting.weights
        mode = FoldedPass(leaves, len(group))
        with torch.enable_grad(), versions.autocast():
            buffers = versions.buffers_of(group[0])
            images = versions.images[group.start : group.stop].flatten(0, 1)
            state = {**leaves, **buffers}
            with mode:
                outputs = call_with(versions.model, state, images)
            buffers.update({name: state[name] for name in buffers})
            parts = zip(group, split(outputs, len(group)), strict=True)
            losses = [versions.loss_of(version, part) for version, part in parts]
            calls, norm_rows = mode.calls, mode.norm_rows
            del outputs, parts, mode  # activations live no longer than the graph and the calls
        scales = [
            torch.full_like(loss, factors[version] * versions.loss_scale)
            for version, loss in zip(group, losses, strict=True)
        ]
        unexpected = [*leaves.values(), *versions.parameters.values()]
        edges = [call.edge for call in calls]
        cotangents = torch.autograd.grad(losses, edges + unexpected, scales, allow_unused=True)
        if any(gradient is not None for gradient in cotangents[len(edges) :]):
            raise CannotFold("a parameter is used in ways that no layer rule describes")
        for call, b in zip(calls, cotangents, strict=False):
            call.b, call.edge = b, None  # an edge keeps its graph alive
        calls = [call for call in calls if call.b is not None]
        self._keep_rows(group, calls, norm_rows, leaves)
        pairs = set(plan.pairs)
        self._groups.append((group, [call for call in calls if call.parameter in pairs]))
        return [loss.detach() for loss in losses]

    @torch.no_grad()
    def _keep_rows(
        self, group: range, calls: list[FoldedCall], norm_rows: Tensors, leaves: Tensors
    ) -> None:
        for name, rows in norm_rows.items():
            self._add(group, name, rows)
        for call in calls:
            a, b = call.a.chunk(len(group)), call.b.chunk(len(group))  # type: ignore[union-attr]
            if call.parameter in self._places:
                call.require_unchanged()
                weight = leaves[call.parameter]
                for version, a_, b_ in zip(group, a, b, strict=True):
                    gradient = call.layer.weight_gradient(a_, b_, weight)
                    self._add(range(version, version + 1), call.parameter, gradient.reshape(1, -1))
            if call.bias is not None:
                bias = call.layer.bias_gradients(call.b, len(group))  # type: ignore[arg-type]
                self._add(group, call.bias, bias)

    def _add(self, group: range, name: str, gradients: torch.Tensor) -> None:
        """Add (len(group), n) to the rows of the versions, and the solved one's to the sum."""
        place, solved = self._places[name], self._solved
        if solved in group:
            at = solved - group.start
            self._row_sum[place].add_(gradients[at])
            before, after = range(group.start, solved), range(solved + 1, group.stop)
            parts = [(before, gradients[:at]), (after, gradients[at + 1 :])]
        else:
            parts = [(group, gradients)]
        for versions, part in parts:
            if versions:
                first = self._kept[versions[0]]
                self._rows[first : first + len(versions), place].add_(part)

    def _sum_up(self, leaves: Tensors, plan: Plan) -> WeightedGradient:
        if self._versions.loss_scale != 1:
            self._rows /= self._versions.loss_scale
            self._row_sum /= self._versions.loss_scale
        for row in self._rows:
            self._row_sum += row
        ready = {
            name: self._row_sum[place].view(leaves[name].shape)
            for name, place in self._places.items()
        }
        due = {name: partial(self._weight_gradient, name) for name in plan.pairs}
        unused = leaves.keys() - ready.keys() - due.keys()
        ready |= {name: torch.zeros_like(leaves[name]).detach() for name in unused}
        return WeightedGradient(list(leaves), ready, due)

    def _weight_gradient(self, name: str) -> torch.Tensor:
        # Only the shape of the weight is used, which an optimizer does not change.
        weight = self._versions.parameters[name].detach()
        total = None
        for _, calls in self._groups:
            for call in calls:
                if call.parameter == name:
                    gradient = call.weight_gradient(weight)
                    total = gradient if total is None else total.add_(gradient)
        if total is None:
            return torch.zeros_like(weight)
        return total if self._versions.loss_scale == 1 else total / self._versions.loss_scale

    def weighted(self) -> WeightedGradient:
        """Σ_l w_l g_l."""
        return self._weighted

    @torch.no_grad()
    def dot(self, direction: Tensors) -> torch.Tensor:
        """(L+1,): g_l · direction."""
        with full_precision(self._versions.images.device):
            return self._dot(direction)

    def _dot(self, direction: Tensors) -> torch.Tensor:
        weighting, scale = self._weighting, self._versions.loss_scale
        total = self._weighted.product(direction)
        if total is None:
            raise RuntimeError(CHANGED)
        in_rows = self._rows.new_zeros(len(self._rows))
        for name, place in self._places.items():
            in_rows += self._rows[:, place] @ direction[name].reshape(-1)
        products: dict[int, torch.Tensor] = {}
        for group, calls in self._groups:
            count, first = len(group), 1 if group[0] not in self._kept else 0
            if count == first:
                continue
            found = [call.dot_by_version(direction, count, first) for call in calls]
            by_version = torch.stack(found).sum(0) if found else in_rows.new_zeros(count - first)
            for version, product in zip(group[first:], by_version.unbind(), strict=True):
                if version in self._kept:
                    row = in_rows[self._kept[version]]
                    # No tensor of the weights: a GPU would be waited for to copy them.
                    products[version] = (row + product / scale) / weighting.weights[version]
        products[self._solved] = weighting.solve(total, products)
        return torch.stack([products[version] for version in range(self._versions.count)])


def _groups(count: int, most: int) -> list[range]:
    """Versions in their order, in as few groups of at most `most` as there can be, all alike."""
    groups = -(-count // most)
    bounds = [round(count * index / groups) for index in range(groups + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(bounds)]


def _places(leaves: Tensors, names: tuple[str, ...]) -> dict[str, slice]:
    """Where the numbers of each parameter are in a row."""
    places, start = {}, 0
    for name in names:
        places[name] = slice(start, start + leaves[name].numel())
        start += leaves[name].numel()
    return places
