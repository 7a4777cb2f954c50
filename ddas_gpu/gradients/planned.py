"""The gradients as a plan has them, one version after the other.

Every version's backward pass goes straight into the one weighted gradient, and no tape outlives
its version. For the products each parameter is one of three kinds (see `plan`):

row     the gradient of each version is kept
pair    the inputs a and output cotangents b of the layers that use the parameter are kept; those of
        all versions are joined to one batch where that is less to copy than adding up gradients
again   nothing is kept: `dot` runs the versions again, on a copy of θ_t and with the same random
        numbers, and takes the product as soon as the backward pass has the parameter's gradient.
        Where all parameters near the input are rows the backward pass ends before them.

Nothing here needs the model's own parameters after the constructor: an optimizer may step them.
"""

from functools import partial

import torch

from ddas_gpu.gradients.capture import Capture
from ddas_gpu.gradients.layer_rules import CapturedCall, inner
from ddas_gpu.gradients.plan import Plan
from ddas_gpu.gradients.versions import (
    CHANGED,
    Tensors,
    Versions,
    WeightedGradient,
    Weighting,
    full_precision,
)


class NotAsPlanned(Exception):
    """The loss depends on parameters in ways that the plan does not know of."""

    def __init__(self, names: set[str]):
        super().__init__(", ".join(sorted(names)))
        self.names = names


class PlannedGradients:
    """Σ w_l g_l, and what the plan says is kept of each g_l."""

    def __init__(self, versions: Versions, weighting: Weighting, plan: Plan):
        self._versions, self._weighting, self._plan = versions, weighting, plan
        self._rows: dict[int, Tensors] = {}  # of every kept version; the loss may not reach all
        self._row_sum: Tensors = {}
        self._calls: dict[int, list[CapturedCall]] = {}
        leaves = versions.leaves()
        captured = {name: leaves[name].detach() for name in plan.pairs}
        for name in captured.keys() - set(plan.joined):
            captured[name].requires_grad_()
        losses = [self._pass(version, leaves, captured) for version in range(versions.count)]
        self.losses = torch.stack(losses)
        self._joined = self._join(plan.joined)
        self._weighted: WeightedGradient | None = self._take_total(leaves | captured)
        self._handed_out = False
        self._theta: Tensors = {}
        if plan.again:
            self._theta = {name: p.detach().clone() for name, p in versions.parameters.items()}
        versions.keep_buffers()

    def _pass(self, version: int, leaves: Tensors, captured: Tensors) -> torch.Tensor:
        """Run a version forward and back; returns its loss."""
        kept = version in self._weighting.kept
        joined = {name: captured[name] for name in self._plan.joined}
        wanted = captured if kept else joined
        capture = Capture(leaves, wanted) if wanted else None
        parameters = leaves | {n: leaf for n, leaf in captured.items() if n not in wanted}
        loss = self._versions.loss(version, parameters, capture)
        factor, correction = self._weighting.factors[version], self._weighting.correction(version)
        if not self._plan.rows and not self._plan.pairs:
            factor, correction = self._weighting.weights[version], 1.0
        inputs = [*leaves.values(), *(leaf for leaf in captured.values() if leaf.requires_grad)]
        hooks = []
        if correction != 1:  # only versions that are kept have one
            row_leaves = {id(leaves[name]) for name in self._plan.rows}
            hooks = [
                leaf.register_hook(partial(torch.mul, other=correction))
                for leaf in inputs
                if id(leaf) not in row_leaves
            ]
        scale = torch.full_like(loss, factor * self._versions.loss_scale)
        loss.backward(scale, inputs=[*inputs, *(capture.starts if capture else ())])
        for hook in hooks:
            hook.remove()
        if capture:
            self._calls[version] = capture.calls()
        self._take_row(version, leaves, correction)
        planned = {*self._plan.rows, *self._plan.again}
        found = {name for name, leaf in leaves.items() if leaf.grad is not None}
        if found - planned and (kept or joined):
            raise NotAsPlanned(found - planned)
        return loss.detach()

    def _take_row(self, version: int, leaves: Tensors, correction: float) -> None:
        """Take the gradients of the row parameters from the leaves."""
        row = {}
        for name in self._plan.rows:
            gradient, leaves[name].grad = leaves[name].grad, None
            if gradient is not None:
                row[name] = gradient
        kept, total = version in self._weighting.kept, self._row_sum
        if kept:
            self._rows[version] = row
        old = [name for name in row if name in total]
        total |= {n: g * correction if kept else g for n, g in row.items() if n not in total}
        if old:
            sums = [total[name] for name in old]
            torch._foreach_add_(sums, [row[name] for name in old], alpha=correction)

    @torch.no_grad()
    def _join(self, names: tuple[str, ...]) -> list[CapturedCall]:
        """One call for each call of these layers, with the images of all versions."""
        if not names:
            return []
        solved = self._weighting.solved
        order = [*([] if solved is None else [solved]), *self._weighting.kept]
        joined: list[CapturedCall] = []
        lists = [[c for c in self._calls[v] if c.parameter in names] for v in order]
        if len({tuple((c.parameter, c.a.shape) for c in calls) for calls in lists}) != 1:
            raise NotAsPlanned({call.parameter for calls in lists for call in calls} & set(names))
        for version in order:
            self._calls[version] = [c for c in self._calls[version] if c.parameter not in names]
        while lists[0]:
            calls = [calls.pop(0) for calls in lists]
            for call in calls:
                call.require_unchanged()
            a = torch.cat([call.a for call in calls])
            b = torch.cat([call.b for call in calls if call.b is not None])
            joined.append(CapturedCall(calls[0].parameter, calls[0].layer, a, a._version, b))
        return joined

    def _take_total(self, leaves: Tensors) -> WeightedGradient:
        total, self._row_sum = self._row_sum, {}
        for name in self._versions.parameters.keys() - total.keys() - set(self._plan.joined):
            leaf = leaves[name]
            total[name] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            leaf.grad = None
        if self._versions.loss_scale != 1:
            for gradient in total.values():
                gradient.mul_(1 / self._versions.loss_scale)
        due = {name: partial(self._joined_gradient, name) for name in self._plan.joined}
        return WeightedGradient(list(self._versions.parameters), total, due)

    def _joined_gradient(self, name: str) -> torch.Tensor:
        # Only the shape of the weight is used, which an optimizer does not change.
        weight = self._versions.parameters[name].detach()
        parts = [call.weight_gradient(weight) for call in self._joined if call.parameter == name]
        return sum(parts[1:], start=parts[0]) if parts else torch.zeros_like(weight)

    def weighted(self) -> WeightedGradient:
        """Σ_l w_l g_l, the very tensors that `dot` will use."""
        if self._weighted is None:
            raise RuntimeError(
                "the weighted gradient was given up in dot() to save memory: keep what weighted() "
                "returned, or ask for it before dot()"
            )
        self._handed_out = True
        return self._weighted

    @torch.no_grad()
    def dot(self, direction: Tensors) -> torch.Tensor:
        """(L+1,): g_l · direction."""
        weighting = self._weighting
        with full_precision(self._versions.images.device):
            total = self._total_product(direction)
            joined = self._joined_products(direction)
        products = {
            version: self._product(version, direction, part)
            for version, part in zip(weighting.kept, joined.unbind(), strict=True)
        }
        if weighting.solved is not None:
            if total is None:
                everything = tuple(self._versions.parameters)
                products[weighting.solved] = self._run_again(
                    weighting.solved, everything, direction
                )
            else:
                products[weighting.solved] = weighting.solve(total, products)
        return torch.stack([products[v] for v in range(self._versions.count)]).to(self.losses.dtype)

    def _total_product(self, direction: Tensors) -> torch.Tensor | None:
        """(Σ w_l g_l) · direction, or None if it has been given up or changed."""
        if self._weighting.solved is None or self._weighted is None:
            return None
        product = self._weighted.product(direction)
        if product is None and not self._plan.again:
            raise RuntimeError(CHANGED)
        if product is not None and self._plan.again and self._handed_out:
            self._weighted = None  # makes room for the passes; nobody can ask for it again
        return product

    def _joined_products(self, direction: Tensors) -> torch.Tensor:
        """(L,): what the joined layers contribute, each version's times its factor."""
        count, first = self._versions.count, 0 if self._weighting.solved is None else 1
        products = self.losses.new_zeros(count - first)
        for call in self._joined:
            products += call.dot_by_version(direction, count, first)
        return products

    def _product(self, version: int, direction: Tensors, joined: torch.Tensor) -> torch.Tensor:
        """g_l · direction of a kept version."""
        with full_precision(self._versions.images.device):
            row = self._rows[version]
            scaled = [joined, *(inner(part, direction[name]) for name, part in row.items())]
        with self._versions.autocast():
            scaled += [call.dot(direction) for call in self._calls.get(version, ())]
        factor = self._weighting.factors[version] * self._versions.loss_scale
        product = torch.stack(scaled).sum() / factor
        if self._plan.again:
            product = product + self._run_again(version, self._plan.again, direction)
        return product

    def _run_again(self, version: int, names: tuple[str, ...], direction: Tensors) -> torch.Tensor:
        """The part of g_l · direction that these parameters contribute, from another pass."""
        leaves = {name: theta.detach() for name, theta in self._theta.items()}
        products = []

        def take(name: str, leaf: torch.Tensor) -> None:
            assert leaf.grad is not None  # the hook runs after it was accumulated
            with torch.no_grad(), full_precision(leaf.device):
                products.append(inner(leaf.grad, direction[name]))
            leaf.grad = None

        for name in names:
            leaves[name].requires_grad_()
            leaves[name].register_post_accumulate_grad_hook(partial(take, name))
        loss = self._versions.loss_again(version, leaves)
        if loss.requires_grad:
            scale = torch.full_like(loss, self._versions.loss_scale)
            loss.backward(scale, inputs=[leaves[name] for name in names])
        if not products:
            return self.losses.new_zeros(())
        return torch.stack(products).sum() / self._versions.loss_scale
