"""Catching, in a forward and backward pass, what layers with big weights saw.

While a `Capture` is active, a call such as `F.conv2d(a, weight)` with one of its parameters runs
with the weight detached, so autograd spends no time and memory on the weight's gradient, and the
capture notes the layer's input a; the backward pass then brings the cotangent b of the output.
From (a, b) both the weight's gradient and its product with any direction can be had later.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ddas_gpu.gradients.folded_batch_norm import folded_batch_norm
from ddas_gpu.gradients.layer_rules import RULES, NotCovered
from ddas_gpu.gradients.versions import Tensors


@dataclass
class CapturedCall:
    """One call of a layer in the passes of `versions`: a and b have the images of all of them."""

    parameter: str
    layer: Any
    versions: slice
    a: torch.Tensor
    b: torch.Tensor | None = None
    written: int = 0

    def attach(self, output: torch.Tensor, anchor: torch.Tensor, folded: bool) -> torch.Tensor:
        """Have the backward pass fill in b; returns the output to go on with."""
        self.written = self.a._version
        if not output.requires_grad:  # the first layer: nothing before it wants a gradient
            output = output + anchor
        if output._is_view():
            # A layer after this one may write to its input (ReLU in place); autograd would then
            # rebuild the history of a view and lose the hook. Nobody else holds this output, so
            # it may pass for a tensor of its own.
            output = torch.ops.aten._unsafe_view(output, output.shape)

        def keep(b: torch.Tensor) -> None:
            self.b = b.flatten(0, 1) if folded else b

        output.register_hook(keep)
        return output

    def weight_gradient(self, weights: torch.Tensor) -> torch.Tensor:
        """Σ_l w_l ∂loss_l/∂weight over this call's versions; weights (L+1,)."""
        self._check_unwritten()
        weights = weights[self.versions].to(self.b)
        if len(weights) == 1:
            return self.layer.weight_gradient(self.a, self.b).mul_(weights)
        per_image = weights.repeat_interleave(len(self.b) // len(weights))
        scaled = self.b * per_image.view(-1, *[1] * (self.b.dim() - 1))
        return self.layer.weight_gradient(self.a, scaled)

    def dot(self, direction: Tensors) -> torch.Tensor:
        """⟨b_l, layer(a_l; direction)⟩ for each of this call's versions."""
        self._check_unwritten()
        change = self.layer.output(self.a, direction[self.parameter])
        count = self.versions.stop - self.versions.start
        # One product an image first: sums of like size lose fewer bits in float32.
        per_image = torch.linalg.vecdot(self.b.flatten(1), change.flatten(1))
        return per_image.view(count, -1).sum(1)

    def _check_unwritten(self) -> None:
        if self.a._version != self.written:
            raise RuntimeError(
                f"the input of the layer with parameter {self.parameter!r} was changed in place "
                f"after the layer had used it; its gradient cannot be computed"
            )


class Capture(TorchFunctionMode):
    """Captures the calls with these parameters; `versions` of them are folded in by vmap."""

    def __init__(self, parameters: Tensors, versions: slice, folded: bool):
        super().__init__()
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._versions = versions
        self._folded = folded
        device = next(iter(parameters.values())).device if parameters else None
        # Everything captured hangs on this leaf, so a backward pass to it visits every call.
        self.anchor = torch.zeros((), device=device, requires_grad=True)
        self._calls: list[CapturedCall] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._folded and function is F.batch_norm:
            return folded_batch_norm(*args, **kwargs)
        if function in RULES and torch.is_grad_enabled():
            try:
                layer = RULES[function](*args, **kwargs)
            except NotCovered:
                return function(*args, **kwargs)
            name = self._names.get(id(layer.weight))
            if name is not None:
                return self._run(name, layer)
        return function(*args, **kwargs)

    def _run(self, name: str, layer: Any) -> torch.Tensor:
        a, output = layer.a, layer.output(layer.a, layer.weight.detach(), layer.bias)
        del layer.a, layer.weight, layer.bias  # the call keeps what it needs, and no tape
        if self._folded:
            return _ShowFolded.apply(output, a, partial(self._note, name, layer))
        return self._note(name, layer, a, output)

    def _note(self, name: str, layer: Any, a: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        call = CapturedCall(name, layer, self._versions, a.detach())
        self._calls.append(call)
        return call.attach(output, self.anchor, self._folded)

    def calls(self) -> list[CapturedCall]:
        """The calls that the loss depended on, after the backward pass."""
        return [call for call in self._calls if call.b is not None]


class _ShowFolded(torch.autograd.Function):
    """Inside vmap a tensor hides its versions axis; a vmap rule is the way to see all of it."""

    @staticmethod
    def forward(output, a, note):
        raise RuntimeError("a captured call left vmap; fold the versions with torch.vmap")

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, output, a, note):
        output_axis, a_axis, _ = in_dims
        if output_axis is None:
            raise RuntimeError("a layer's output does not depend on the version")
        a = a.unsqueeze(0).expand(info.batch_size, *a.shape) if a_axis is None else a
        a = a.movedim(a_axis or 0, 0).flatten(0, 1)
        return note(a, output.movedim(output_axis, 0)), 0
