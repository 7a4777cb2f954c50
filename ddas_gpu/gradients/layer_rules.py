"""What the layer-wise method knows about layers: one rule for each function with a big weight.

A rule is a class registered for the functions it describes. Its constructor takes what the
function takes, and it must have

    a, weight, bias         the layer's input and parameters
    output(a, weight, bias) the layer, linear in `weight`
    weight_gradient(a, b)   ∂⟨b, output(a, weight)⟩/∂weight, summed over the batch

with a: (N, ...) the inputs and b: (N, ...) the cotangents of the outputs. Rules look at calls of
functions, not at modules: a module of the user's own that calls `F.conv2d` is covered, and so is
one that is called several times in a pass. Parameters without a rule (norms, biases, scales)
need none as long as they are small: see `layerwise`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

RULES: dict[Callable, type] = {}


class NotCovered(Exception):
    """Raised by a rule's constructor for arguments it does not describe."""


def layer_rule(*functions: Callable) -> Callable[[type], type]:
    """Register a class as the rule of some functions; a function has one rule only."""

    def register(rule: type) -> type:
        for function in functions:
            if function in RULES:
                raise ValueError(f"{function} already has the rule {RULES[function].__name__}")
            RULES[function] = rule
        return rule

    return register


@layer_rule(F.linear)
class Linear:
    """a: (N, ..., in), b: (N, ..., out), weight: (out, in)."""

    def __init__(self, input: torch.Tensor, weight: torch.Tensor, bias: Any = None):
        if input.dim() < 2 or weight.dim() != 2:
            raise NotCovered
        self.a, self.weight, self.bias = input, weight, bias

    def output(self, a: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        return F.linear(a, weight, bias)

    def weight_gradient(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return b.flatten(0, -2).t() @ a.flatten(0, -2)


@layer_rule(torch.conv1d, torch.conv2d, torch.conv3d)
class Convolution:
    """a: (N, C_in, ...), b: (N, C_out, ...), weight: (C_out, C_in/groups, ...)."""

    def __init__(
        self,
        input: torch.Tensor,
        weight: torch.Tensor,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ):
        spatial = weight.dim() - 2
        if input.dim() != weight.dim():  # an image without a batch axis
            raise NotCovered
        self.a, self.weight, self.bias = input, weight, bias
        self._weight_shape = weight.shape
        self._stride = _one_per_axis(stride, spatial)
        self._dilation = _one_per_axis(dilation, spatial)
        self._padding = self._explicit_padding(padding, spatial)
        self._groups = groups

    def _explicit_padding(self, padding: Any, spatial: int) -> tuple[int, ...]:
        if padding == "valid":
            return (0,) * spatial
        if padding == "same":
            both_sides = [
                dilation * (size - 1)
                for dilation, size in zip(self._dilation, self._weight_shape[2:], strict=True)
            ]
            if any(size % 2 for size in both_sides):  # torch then pads one side more than the other
                raise NotCovered
            return tuple(size // 2 for size in both_sides)
        return _one_per_axis(padding, spatial)

    def output(self, a: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        spatial = weight.dim() - 2
        return torch.convolution(
            a,
            weight,
            bias,
            self._stride,
            self._padding,
            self._dilation,
            False,
            (0,) * spatial,
            self._groups,
        )

    def weight_gradient(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        spatial = a.dim() - 2
        shape_only = a.new_empty(1).expand(self._weight_shape)
        return torch.ops.aten.convolution_backward(
            b,
            a,
            shape_only,
            None,
            self._stride,
            self._padding,
            self._dilation,
            False,
            (0,) * spatial,
            self._groups,
            (False, True, False),
        )[1]


def _one_per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """3 -> (3, 3); (3,) -> (3, 3): torch's convolutions take any of these."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values
