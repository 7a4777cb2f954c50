"""The gradients as a plan has them, one version after the other.

Every version's backward pass goes straight into the one weighted gradient, and no tape outlives
its version. For the products each parameter is one of three kinds (see `plan`):

row     the gradient of each version is kept, flat
pair    the inputs a and output cotangents b of the layers that use the parameter are kept
again   nothing is kept: `dot` runs the versions again, on a copy of θ_t and with the same random
        numbers, and takes the product as soon as the backward pass has the parameter's gradient.
        Where all parameters near the input are rows the backward pass ends before them.

Nothing here needs the model's own parameters after the constructor: an optimizer may step them.
"""

from functools import partial

import torch

from ddas_gpu.gradients.capture import Capture, CapturedCall
from ddas_gpu.gradients.layer_rules import inner, widened
from ddas_gpu.gradients.plan import Plan
from ddas_gpu.gradients.versions import Tensors, Versions, Weighting, full_precision


class NotAsPlanned(Exception):
    """The loss depends on parameters in ways that the plan does not know of."""

    def __init__(self, names: set[str]):
        super().__init__(", ".join(sorted(names)))
        self.names = names


class PlannedGradients:
    """Σ w_l g_l, and what the plan says is kept of each g_l."""

    def __init__(self, versions: Versions, weighting: Weighting, plan: Plan):
        self._versions, self._weighting, self._plan = versions, weighting, plan
        kept = len(weighting.kept)
        self._rows = {  # (L, n) for a parameter of n numbers; 0 where the loss does not reach
            name: _zero_rows(kept, versions.parameters[name]) for name in plan.rows
        }
        self._calls: dict[int, list[CapturedCall]] = {}
        leaves = versions.leaves()
        captured = {name: leaves[name].detach().requires_grad_() for name in plan.pairs}
        losses = [self._pass(version, leaves, captured) for version in range(versions.count)]
        self.losses = torch.stack(losses)
        self._total: Tensors | None = self._take_total(leaves | captured)
        self._written = {name: total._version for name, total in self._total.items()}
        self._handed_out = False
        self._theta: Tensors = {}
        if plan.again:
            self._theta = {name: p.detach().clone() for name, p in versions.parameters.items()}
        versions.keep_buffers()

    def _pass(self, version: int, leaves: Tensors, captured: Tensors) -> torch.Tensor:
        """Run a version forward and back; returns its loss."""
        kept = version in self._weighting.kept
        capture = Capture(leaves, captured) if kept and captured else None
        parameters = leaves if capture else leaves | captured
        loss = self._versions.loss(version, parameters, capture)
        factor, correction = self._weighting.factors[version], self._weighting.correction(version)
        if not self._plan.rows and not self._plan.pairs:
            factor, correction = self._weighting.weights[version], 1.0
        hooks = self._hook_rows(version, leaves, correction) if kept else []
        if correction != 1:  # only versions that are kept have one
            others = [leaves[name] for name in leaves.keys() - self._rows.keys()]
            hooks += [
                leaf.register_hook(partial(torch.mul, other=correction))
                for leaf in (*others, *captured.values())
            ]
        scale = torch.full_like(loss, factor * self._versions.loss_scale)
        loss.backward(scale, inputs=[*leaves.values(), *captured.values()])
        for hook in hooks:
            hook.remove()
        if capture:
            self._calls[version] = capture.calls()
        planned = {*self._plan.rows, *self._plan.again}
        found = {name for name, leaf in leaves.items() if leaf.grad is not None}
        if kept and found - planned:
            raise NotAsPlanned(found - planned)
        return loss.detach()

    def _hook_rows(self, version: int, leaves: Tensors, correction: float) -> list:
        """Have the backward pass write the gradients of the row parameters to the version's row."""
        row = self._weighting.kept.index(version)

        def keep(name: str, gradient: torch.Tensor) -> torch.Tensor:
            self._rows[name][row].view(gradient.shape).copy_(gradient)
            return gradient if correction == 1 else gradient * correction

        return [leaves[name].register_hook(partial(keep, name)) for name in self._plan.rows]

    def _take_total(self, leaves: Tensors) -> Tensors:
        total = {}
        for name in self._versions.parameters:
            leaf = leaves[name]
            total[name] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            leaf.grad = None
        if self._versions.loss_scale != 1:
            for gradient in total.values():
                gradient.mul_(1 / self._versions.loss_scale)
        return total

    def weighted(self) -> Tensors:
        """{name: Σ_l w_l g_l}, the very tensors that `dot` will use."""
        if self._total is None:
            raise RuntimeError(
                "the weighted gradient was given up in dot() to save memory: keep what weighted() "
                "returned, or ask for it before dot()"
            )
        self._handed_out = True
        return dict(self._total)

    @torch.no_grad()
    def dot(self, direction: Tensors) -> torch.Tensor:
        """(L+1,): g_l · direction."""
        weighting = self._weighting
        with full_precision(self._versions.images.device):
            total = self._total_product(direction)
            in_rows = self._row_products(direction)
        products = {
            version: self._product(version, direction, in_rows[row])
            for row, version in enumerate(weighting.kept)
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
        if self._weighting.solved is None or self._total is None:
            return None
        if any(self._written[name] != total._version for name, total in self._total.items()):
            if self._plan.again:
                return None
            raise RuntimeError(
                "the tensors that weighted() returned were changed in place before dot(), which "
                "needs them: clone them first"
            )
        products = [inner(total, direction[name]) for name, total in self._total.items()]
        if self._plan.again and self._handed_out:
            self._total = None  # makes room for the passes; nobody can ask for it again
        return torch.stack(products).sum()

    def _row_products(self, direction: Tensors) -> torch.Tensor:
        """(L,): what the row parameters contribute, each version's times its factor."""
        products = self.losses.new_zeros(len(self._weighting.kept))
        for name, rows in self._rows.items():
            products = products + rows @ direction[name].reshape(-1).to(rows.dtype)
        return products

    def _product(self, version: int, direction: Tensors, in_rows: torch.Tensor) -> torch.Tensor:
        """g_l · direction of a kept version."""
        scaled = [in_rows]
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


def _zero_rows(count: int, parameter: torch.Tensor) -> torch.Tensor:
    """(count, n) for a parameter of n numbers, float32 or wider."""
    return widened(parameter.detach()).new_zeros(count, parameter.numel())
