"""The reference: every gradient, kept. L+1 gradients of memory, nothing to go wrong."""

from collections.abc import Iterator

import torch

from ddas_gpu.gradients.versions import Tensors, Versions


class ReferenceGradients:
    """g_l for l = 0..L, one ordinary backward pass each; what the other methods must equal."""

    def __init__(self, versions: Versions):
        parameters = list(versions.parameters.values())
        losses, self._gradients = [], []
        for loss in versions.losses_in_turn():
            # A parameter the loss does not reach has gradient 0.
            gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
            losses.append(loss.detach())
            self._gradients.append(dict(zip(versions.parameters, gradients, strict=True)))
        self.losses = torch.stack(losses)

    def weighted(self, weights: torch.Tensor) -> Tensors:
        """{name: Σ_l w_l g_l}, weights (L+1,)."""
        weights = weights.tolist()
        total = {name: weights[0] * gradient for name, gradient in self._gradients[0].items()}
        for weight, gradients in zip(weights[1:], self._gradients[1:], strict=True):
            for name, gradient in gradients.items():
                total[name].add_(gradient, alpha=weight)
        return total

    def weighted_parts(self, weights: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """The same as (name, gradient), all at once."""
        return iter(self.weighted(weights).items())

    def dot(self, direction: Tensors) -> torch.Tensor:
        """(L+1,): g_l · direction."""
        return torch.stack(
            [
                sum((gradient * direction[name]).sum() for name, gradient in gradients.items())
                for gradients in self._gradients
            ]
        )
