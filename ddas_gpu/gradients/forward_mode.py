"""Dot products as directional derivatives: any model, one copy of the parameters, no tape."""

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
        self._tape: torch.Tensor | None = torch.stack(
            list(versions.losses_in_turn(self._parameters))
        )
        self.losses = self._tape.detach()

    def weighted(self, weights: torch.Tensor) -> Tensors:
        """{name: Σ_l w_l g_l}, weights (L+1,). A second call repeats the forward passes."""
        losses, self._tape = self._tape, None
        if losses is None:
            losses = torch.stack(
                [
                    self._versions.loss_again(version, self._parameters)
                    for version in range(self._versions.count)
                ]
            )
        gradients = torch.autograd.grad(
            losses, list(self._parameters.values()), weights.to(losses), materialize_grads=True
        )
        return dict(zip(self._parameters, gradients, strict=True))

    def dot(self, direction: Tensors) -> torch.Tensor:
        """(L+1,): g_l · direction."""
        parameters = {name: parameter.detach() for name, parameter in self._parameters.items()}
        dots = []
        for version in range(self._versions.count):
            loss = partial(self._versions.loss_again, version)
            dots.append(jvp(loss, (parameters,), (direction,))[1])
        return torch.stack(dots)
