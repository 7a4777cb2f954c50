"""Catching, in a forward and backward pass, what layers with big weights saw.

While a `Capture` is active, a call such as `F.conv2d(a, weight)` with one of its parameters runs
with a leaf of the capture's own in the place of the weight, and the capture notes the input a; the
backward pass then brings the cotangent b of the output. From (a, b) the product of the weight's
gradient with any direction can be had later. A gradient that still reaches the parameter itself
tells that it is used in other ways, too.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ddas_gpu.gradients.layer_rules import Layer, inner, take_apart
from ddas_gpu.gradients.versions import Tensors


@dataclass
class CapturedCall:
    """One call of a layer: its input, and the cotangent of its output after the backward pass.

    In a folded pass both have the images of all versions in their first axis.
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

    def dot_by_version(self, direction: Tensors, count: int, first: int) -> torch.Tensor:
        """⟨b_l, layer(a_l; direction)⟩ for l from `first` on; `count` versions are folded in."""
        assert self.b is not None  # the loss depended on this call
        b = self.b[first * len(self.b) // count :]
        change = self._change(direction, first * len(self.a) // count)
        if b.dim() > 2 and not (b.is_contiguous() and change.is_contiguous()):
            b, change = b.movedim(1, -1), change.movedim(1, -1)  # channels last: no copy
        shape = (count - first, -1)
        return torch.linalg.vecdot(b.reshape(shape), change.reshape(shape))

    def _change(self, direction: Tensors, first_image: int = 0) -> torch.Tensor:
        if self.a._version != self.written:
            raise RuntimeError(
                f"the input of the layer with parameter {self.parameter!r} was changed in place "
                f"after the layer had used it; its gradient cannot be computed"
            )
        a = self.a[first_image:] if first_image else self.a
        return self.layer.output(a, direction[self.parameter])


class Capture(TorchFunctionMode):
    """Captures the calls with these parameters.

    parameters   {name: the tensor the model has for it}
    leaves       {name: the tensor to compute with}
    """

    def __init__(self, parameters: Tensors, leaves: Tensors, folded: bool = False):
        super().__init__()
        self._names = {id(parameters[name]): name for name in leaves}
        self._leaves = leaves
        self._folded = folded
        self._calls: list[CapturedCall] = []

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._folded and function is F.batch_norm:
            return folded_batch_norm(*args, **kwargs)
        parts = take_apart(function, args, kwargs) if torch.is_grad_enabled() else None
        if parts is None or id(parts[2]) not in self._names:
            return function(*args, **kwargs)
        layer, a, weight, bias = parts
        name = self._names[id(weight)]
        output = layer.output(a, self._leaves[name], bias)
        if self._folded:
            return _ShowFolded.apply(output, a, partial(self._note, name, layer))
        return self._note(name, layer, a, output)

    def _note(self, name: str, layer: Layer, a: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        call = CapturedCall(name, layer, a.detach(), a._version)
        self._calls.append(call)
        if output._is_view():
            # A layer after this one may write to its input (ReLU in place); autograd would then
            # rebuild the history of a view and lose the hook. Nobody else holds this output, so
            # it may pass for a tensor of its own.
            output = torch.ops.aten._unsafe_view(output, output.shape)

        def keep(b: torch.Tensor) -> None:
            call.b = b.flatten(0, 1) if self._folded else b

        output.register_hook(keep)
        return output

    def calls(self) -> list[CapturedCall]:
        """The calls that the loss depended on, after the backward pass."""
        return [call for call in self._calls if call.b is not None]


class _ShowFolded(torch.autograd.Function):
    """Inside vmap a tensor hides its versions axis; a vmap rule is the way to see all of it."""

    @staticmethod
    def forward(output: Any, a: Any, note: Any) -> torch.Tensor:
        raise RuntimeError("a captured call left vmap; fold the versions with torch.vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, output: Any, a: Any, note: Any) -> tuple[torch.Tensor, int]:
        output_axis, a_axis, _ = in_dims
        if output_axis is None:
            raise RuntimeError("a layer's output does not depend on the version")
        a = a.unsqueeze(0).expand(info.batch_size, *a.shape) if a_axis is None else a
        a = a.movedim(a_axis or 0, 0).flatten(0, 1)
        return note(a, output.movedim(output_axis, 0)), 0


def folded_batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`F.batch_norm`, called inside vmap, on versions that it has folded into one batch.

    vmap's own rule moves the versions into the channels, which copies the whole batch several times
    and applies scale and shift apart; with it a folded pass loses what it gains elsewhere. Here
    every version goes through `F.batch_norm` by itself, on its own part of the memory.
    """
    tensors = (input, running_mean, running_var, weight, bias)
    return _FoldedBatchNorm.apply(*tensors, training, momentum, eps)


class _FoldedBatchNorm(torch.autograd.Function):
    """An autograd function for the sake of its vmap rule, where all versions can be seen."""

    @staticmethod
    def forward(*arguments: Any) -> torch.Tensor:
        return F.batch_norm(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> tuple[torch.Tensor, int]:
        def rows(tensor: Any, axis: int | None) -> tuple[Any, ...]:
            """One entry a version; running statistics are views, written to in place."""
            return (tensor,) * info.batch_size if axis is None else tensor.unbind(axis)

        by_version = zip(*map(rows, arguments, in_dims), strict=True)
        return torch.stack([F.batch_norm(*row) for row in by_version]), 0
