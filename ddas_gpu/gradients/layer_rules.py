"""Calling layers, and whole models, with other tensors than their own.

The functions of RULES have an output that is linear in a weight.

For such a layer, with input a, output(a; W) and output cotangent b,

    ∂loss/∂W · v = ⟨b, output(a; v)⟩

one forward call with the direction v in the place of the weight, and an inner product. The images
of several versions can be one batch of such a call.

Rules look at calls of functions, not at modules: a module of the user's own that calls `F.conv2d`
is covered, and so is one that is called several times in a pass. A function without a rule needs
none: its parameters' gradients are kept, or computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

LOW_PRECISION = (torch.float16, torch.bfloat16)
_USUAL = ("input", "weight", "bias")
# {function: its first arguments}: the layer's input, its weight, and perhaps a bias.
RULES: dict[Callable[..., torch.Tensor], tuple[str, ...]] = {
    F.linear: _USUAL,
    torch.conv1d: _USUAL,
    torch.conv2d: _USUAL,
    torch.conv3d: _USUAL,
    torch.conv_transpose1d: _USUAL,
    torch.conv_transpose2d: _USUAL,
    torch.conv_transpose3d: _USUAL,
}

# The options of convolutions, in their order.
_FORWARD = ("stride", "padding", "dilation", "groups")
_TRANSPOSED = ("stride", "padding", "output_padding", "groups", "dilation")
_CONVOLUTIONS = {
    torch.conv1d: _FORWARD,
    torch.conv2d: _FORWARD,
    torch.conv3d: _FORWARD,
    torch.conv_transpose1d: _TRANSPOSED,
    torch.conv_transpose2d: _TRANSPOSED,
    torch.conv_transpose3d: _TRANSPOSED,
}


@dataclass(frozen=True)
class Layer:
    """One of the functions above with all its arguments but the tensors."""

    function: Callable[..., torch.Tensor]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def output(self, a: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        """Call the layer with these tensors."""
        tensors = (a, weight, bias)[: len(RULES[self.function])]
        return self.function(*tensors, *self.args, **self.kwargs)

    def takes_batches(self, a: torch.Tensor, weight: torch.Tensor) -> bool:
        """Whether the first axis of `a` is a batch and `weight_gradient` knows the layer."""
        if self.function is F.linear:
            return a.dim() >= 2
        if self.function not in _CONVOLUTIONS or a.dim() != weight.dim():
            return False
        return not isinstance(self._options().get("padding"), str)

    def weight_gradient(
        self, a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """The gradient of the weight, from the input and the cotangent of the output.

        Of `weight` only the shape is used.
        """
        if self.function is F.linear:
            return b.flatten(0, -2).t() @ a.flatten(0, -2)
        options, axes = self._options(), weight.dim() - 2

        def per_axis(name: str, default: int) -> list[int]:
            value = options.get(name, default)
            return [value] * axes if isinstance(value, int) else list(value) * (axes // len(value))

        return torch.ops.aten.convolution_backward(
            b,
            a,
            weight.to(a.dtype),
            None,
            per_axis("stride", 1),
            per_axis("padding", 0),
            per_axis("dilation", 1),
            _CONVOLUTIONS[self.function] is _TRANSPOSED,
            per_axis("output_padding", 0),
            options.get("groups", 1),
            [False, True, False],
        )[1]

    def bias_gradients(self, b: torch.Tensor, count: int) -> torch.Tensor:
        """(count, channels): of each of the versions in the batch."""
        b = b if self.function is F.linear else b.movedim(1, -1)
        dtype = torch.float32 if b.dtype in LOW_PRECISION else b.dtype
        return b.reshape(count, -1, b.shape[-1]).sum(1, dtype=dtype)

    def _options(self) -> dict[str, Any]:
        return dict(zip(_CONVOLUTIONS[self.function], self.args, strict=False)) | self.kwargs


def take_apart(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Layer, torch.Tensor, torch.Tensor, Any] | None:
    """Return (layer, input, weight, bias) of a call, or None if there is no rule for it."""
    names = RULES.get(function)
    if names is None:
        return None
    tensors = dict(zip(names, args, strict=False))
    options = dict(kwargs)
    tensors |= {name: options.pop(name) for name in names if name in options}
    layer = Layer(function, args[len(names) :], options)
    return layer, tensors[names[0]], tensors[names[1]], tensors.get("bias")


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

    def dot(self, direction: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """⟨b, layer(a; direction)⟩."""
        assert self.b is not None  # the loss depended on this call
        return inner(self.b, self._change(direction))

    def dot_by_version(
        self, direction: Mapping[str, torch.Tensor], count: int, first: int = 0
    ) -> torch.Tensor:
        """⟨b_l, layer(a_l; direction)⟩ for l from `first` on; `count` versions are in the batch."""
        assert self.b is not None  # the loss depended on this call
        change = self._change(direction, first * len(self.a) // count)
        return inner_by_version(self.b[first * len(self.b) // count :], change, count - first)

    def weight_gradient(self, weight: torch.Tensor) -> torch.Tensor:
        """Of all images in the batch."""
        assert self.b is not None  # the loss depended on this call
        self.require_unchanged()
        return self.layer.weight_gradient(self.a, self.b, weight).to(weight.dtype)

    def _change(self, direction: Mapping[str, torch.Tensor], first_image: int = 0) -> torch.Tensor:
        self.require_unchanged()
        a, v = self.a[first_image:] if first_image else self.a, direction[self.parameter]
        return self.layer.output(a, v.to(a.dtype) if a.dtype in LOW_PRECISION else v)

    def require_unchanged(self) -> None:
        if self.a._version != self.written:
            raise RuntimeError(
                f"the input of the layer with parameter {self.parameter!r} was changed in place "
                f"after the layer had used it; its gradient cannot be computed"
            )


@dataclass
class FoldedCall(CapturedCall):
    """A layer's call for all versions of a pass, and the place of its output in the graph."""

    bias: str | None = None
    edge: Any = None


def call_with(model: nn.Module, tensors: dict[str, torch.Tensor], *inputs: Any) -> Any:
    """Return model(*inputs), computed with `tensors`, {name: tensor}, as `functional_call` does.

    A buffer that the model has replaced by a new tensor is replaced in `tensors`, too.

    `functional_call` swaps a tensor under each of its names. A module that a model has under two
    names (`self.first` and an entry of `self.layers`) would be swapped twice, and the model would
    keep the tensor of the call instead of its parameter. Here every module is visited once.
    """
    wanted = {id(own): name for name, own in _named(model, recurse=True) if name in tensors}
    names = {
        place: wanted[id(own)]
        for prefix, module in model.named_modules()
        for place, own in _named(module, recurse=False, prefix=prefix)
        if id(own) in wanted
    }
    places = {place: tensors[name] for place, name in names.items()}
    outputs = functional_call(model, places, inputs, tie_weights=False)
    for place, name in names.items():
        if places[place] is not tensors[name]:
            tensors[name] = places[place].detach()
    return outputs


def _named(module: nn.Module, **options: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters and buffers of a module under all their names."""
    return chain(
        module.named_parameters(remove_duplicate=False, **options),
        module.named_buffers(remove_duplicate=False, **options),
    )


def inner(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Σ a·b, a tensor of shape ()."""
    a, b = widened(a), widened(b)
    if a.dtype != b.dtype:
        common = torch.promote_types(a.dtype, b.dtype)
        a, b = a.to(common), b.to(common)
    flat_a, flat_b = _in_memory_order(a), _in_memory_order(b)
    if flat_a is None or flat_b is None or flat_a[0] != flat_b[0]:
        return (a * b).sum()
    return torch.dot(flat_a[1], flat_b[1])


def inner_by_version(a: torch.Tensor, b: torch.Tensor, count: int) -> torch.Tensor:
    """(count,): Σ a·b of each of the versions in the batch."""
    pairs = zip(a.chunk(count), b.chunk(count), strict=True)
    return torch.stack([inner(x, y) for x, y in pairs])


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, in float32 if it has fewer bits."""
    return tensor.float() if tensor.dtype in LOW_PRECISION else tensor


def _in_memory_order(tensor: torch.Tensor) -> tuple[str, torch.Tensor] | None:
    """The layout and a flat view of a dense tensor; flattening channels-last would copy it."""
    if tensor.is_contiguous():
        return "contiguous", tensor.view(-1)
    if tensor.dim() in (4, 5):
        channels_last = tensor.movedim(1, -1)
        if channels_last.is_contiguous():
            return "channels last", channels_last.view(-1)
    return None
