"""The functions whose output is linear in a weight, and how to call them with another weight.

For such a layer, with input a, output(a; W) and output cotangent b,

    ∂loss/∂W · v = ⟨b, output(a; v)⟩

one forward call with the direction v in the place of the weight. Rules look at calls of functions,
not at modules: a module of the user's own that calls `F.conv2d` is covered, and so is one that is
called several times in a pass.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

LINEAR_IN_WEIGHT: frozenset[Callable] = frozenset(
    {
        F.linear,
        torch.conv1d,
        torch.conv2d,
        torch.conv3d,
        torch.conv_transpose1d,
        torch.conv_transpose2d,
        torch.conv_transpose3d,
    }
)
_TENSORS = ("input", "weight", "bias")  # the first arguments of all of them


@dataclass(frozen=True)
class Layer:
    """One of the functions above with all its arguments but the tensors."""

    function: Callable
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def output(self, a: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        return self.function(a, weight, bias, *self.args, **self.kwargs)


def take_apart(
    function: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Layer, torch.Tensor, torch.Tensor, Any] | None:
    """(layer, input, weight, bias) of a call, or None if its function is not one of the above."""
    if function not in LINEAR_IN_WEIGHT:
        return None
    tensors = dict(zip(_TENSORS, args, strict=False))
    options = dict(kwargs)
    tensors |= {name: options.pop(name) for name in _TENSORS if name in options}
    layer = Layer(function, args[3:], options)
    return layer, tensors["input"], tensors["weight"], tensors.get("bias")
