"""Catching, in a forward and backward pass, what layers with big weights saw.

While a `Capture` is active, a call such as `F.conv2d(a, weight)` with one of its parameters runs
with a leaf of the capture's own in the place of the weight, and the capture notes the input a; the
backward pass then brings the cotangent b of the output. From (a, b) the product of the weight's
gradient with any direction can be had later. A gradient that still reaches the parameter itself
tells that it is used in other ways, too.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ddas_gpu.gradients.layer_rules import Layer, inner, inner_by_version, take_apart
from ddas_gpu.gradients.versions import Tensors


@dataclass
class CapturedCall:
    """One call of a layer: its input, and the cotangent of its output after the backward pass.

    Both may have the images of several versions in their first axis.
    """

    parameter: str
    layer: Layer
    a: torch.Tensor
    written: int
    b: torch.Tensor | None = None

    def dot(self, direction: Tensors) -> torch.Tensor:
        """⟨b, layer(a; direction)⟩."""
        assert self.b is not None  # the loss depended on this call
        return inner(self.b, self._change(direction))

    def dot_by_version(self, direction: Tensors, count: int, first: int = 0) -> torch.Tensor:
        """⟨b_l, layer(a_l; direction)⟩ for l from `first` on; `count` versions are in the batch."""
        assert self.b is not None  # the loss depended on this call
        change = self._change(direction, first * len(self.a) // count)
        return inner_by_version(self.b[first * len(self.b) // count :], change, count - first)

    def weight_gradient(self, weight: torch.Tensor) -> torch.Tensor:
        """Of all images in the batch."""
        assert self.b is not None  # the loss depended on this call
        self.require_unchanged()
        return self.layer.weight_gradient(self.a, self.b, weight)

    def _change(self, direction: Tensors, first_image: int = 0) -> torch.Tensor:
        self.require_unchanged()
        a = self.a[first_image:] if first_image else self.a
        return self.layer.output(a, direction[self.parameter])

    def require_unchanged(self) -> None:
        if self.a._version != self.written:
            raise RuntimeError(
                f"the input of the layer with parameter {self.parameter!r} was changed in place "
                f"after the layer had used it; its gradient cannot be computed"
            )


class Capture(TorchFunctionMode):
    """Captures the calls with these parameters.

    parameters   {name: the tensor the model has for it}
    leaves       {name: the tensor to compute with}; one that requires no gradient gets none in the
                 backward pass: it can be had from the call.
    """

    def __init__(self, parameters: Tensors, leaves: Tensors):
        super().__init__()
        self._names = {id(parameters[name]): name for name in leaves}
        self._leaves = leaves
        self._calls: list[CapturedCall] = []
        self.starts: list[torch.Tensor] = []  # for the backward pass, where it has nowhere to go

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        parts = take_apart(function, args, kwargs) if torch.is_grad_enabled() else None
        if parts is None or id(parts[2]) not in self._names:
            return function(*args, **kwargs)
        layer, a, weight, bias = parts
        name = self._names[id(weight)]
        output = layer.output(a, self._leaves[name], bias)
        call = CapturedCall(name, layer, a.detach(), a._version)
        self._calls.append(call)
        if not output.requires_grad:
            self.starts.append(output.requires_grad_())
        if output._is_view() or output.is_leaf:
            # A layer after this one may write to its input (ReLU in place); autograd would then
            # rebuild the history of a view and lose the hook. Nobody else holds this output, so
            # it may pass for a tensor of its own.
            output = torch.ops.aten._unsafe_view(output, output.shape)

        def keep(b: torch.Tensor) -> None:
            call.b = b

        output.register_hook(keep)
        return output

    def calls(self) -> list[CapturedCall]:
        """The calls that the loss depended on, after the backward pass."""
        return [call for call in self._calls if call.b is not None]
