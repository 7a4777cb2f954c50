"""Catching, in a forward and backward pass, what layers with big weights saw.

While a `Capture` is active, a call such as `F.conv2d(a, weight)` with one of its parameters runs
with a leaf of the capture's own in the place of the weight, and the capture notes the input a; the
backward pass then brings the cotangent b of the output. From (a, b) the product of the weight's
gradient with any direction can be had later. A gradient that still reaches the parameter itself
tells that it is used in other ways, too.
"""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ddas_gpu.gradients.layer_rules import CapturedCall, take_apart
from ddas_gpu.gradients.versions import Tensors


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
