"""Dot products as directional derivatives: any model, one copy of the parameters, no tape."""

from collections.abc import Iterator
from functools import partial

import torch
from torch.func import jvp

from ddas_gpu.gradients.versions import Tensors, Versions


class ForwardModeGradients:
    """g_l · v = d/dε loss_l(θ_t + ε v) at ε = 0, a forward pass with tangents for each version.

    All passes run on a copy of θ_t, so an optimizer may step the model's own parameters in place
    before `dot`, or even before `weighted`. The passes of `dot` draw the same random numbers
    (torch's generators) as those of the constructor: dropout masks repeat.
    """

    def __init__(self, versions: Versions):
        self._versions = versions
        self._parameters = {
            name: parameter.detach().clone().requires_grad_()
            for name, parameter in versions.parameters.items()
        }
        self._tapes: list[torch.Tensor] = list(versions.losses_in_turn(self._parameters))
        self.losses = torch.stack([loss.detach() for loss in self._tapes])

    def weighted(self, weights: torch.Tensor) -> Tensors:
        """{name: Σ_l w_l g_l}, weights (L+1,). A second call repeats the forward passes."""
        tapes, self._tapes = self._tapes, []
        for version, weight in enumerate(weights.to(self.losses)):
            loss = tapes.pop(0) if tapes else self._versions.loss_again(version, self._parameters)
            # Accumulates in place, and lets go of one version's tape before the next one's turn.
            loss.backward(weight, inputs=list(self._parameters.values()))
        gradients = {}
        for name, parameter in self._parameters.items():
            gradients[name], parameter.grad = parameter.grad, None
            if gradients[name] is None:
                gradients[name] = torch.zeros_like(parameter)
        return gradients

    def weighted_parts(self, weights: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """The same as (name, gradient), all at once."""
        return iter(self.weighted(weights).items())

    def dot(self, direction: Tensors) -> torch.Tensor:
        """(L+1,): g_l · direction."""
        parameters = {name: parameter.detach() for name, parameter in self._parameters.items()}
        dots = []
        for version in range(len(self.losses)):
            loss = partial(self._versions.loss_again, version)
            dots.append(jvp(loss, (parameters,), (direction,))[1])
        return torch.stack(dots)
