"""What a user's own network must be like, and what it is called in records."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy


def bare(model: nn.Module) -> nn.Module:
    """Return the network inside the wrappers of torch.compile and DataParallel.

    A compiled network would be compiled again for the passes of a search; DataParallel cannot be
    called with other weights.
    """
    inner = getattr(model, "_orig_mod", model)
    return bare(inner.module) if isinstance(inner, nn.DataParallel) else inner


def require_weights(model: nn.Module) -> None:
    """Raise a ValueError if nothing of a network can be learned."""
    name = type(model).__name__
    if any(isinstance(layer, torch.jit.ScriptModule) for layer in model.modules()):
        raise ValueError(f"{name} is a scripted network: give the nn.Module it was made from")
    if any(is_lazy(weight) for weight in model.parameters()):
        raise ValueError(f"{name} has lazy layers without weights: call it once on some inputs")
    if not any(weight.requires_grad for weight in model.parameters()):
        raise ValueError(f"{name} has no parameter that requires a gradient")


def require_single_precision(model: nn.Module) -> None:
    """Raise a ValueError if a network cannot take the float32 inputs of a search."""
    kinds = {weight.dtype for weight in model.parameters() if weight.requires_grad}
    if torch.float32 not in kinds:
        found = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        raise ValueError(
            f"{type(model).__name__} has weights of {found}: give it in float32, model.float(); "
            "amp='bf16' or 'fp16' computes in 16 bits"
        )


def class_name(model: nn.Module) -> str:
    """Return the class of a network, with its module."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of an object's class.

    >>> name_of(len), name_of(functools.partial(sorted, reverse=True))
    ('len', 'partial(sorted)')
    """
    if isinstance(function, functools.partial):
        return f"partial({name_of(function.func)})"
    return getattr(function, "__qualname__", type(function).__qualname__)
