"""Calling a model with other tensors in the places of its parameters and buffers."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

Named = Iterator[tuple[str, torch.Tensor]]


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


def _named(module: nn.Module, **options: Any) -> Named:
    """The parameters and buffers of a module under all their names."""
    return chain(
        module.named_parameters(remove_duplicate=False, **options),
        module.named_buffers(remove_duplicate=False, **options),
    )
