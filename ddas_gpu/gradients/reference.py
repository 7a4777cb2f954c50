"""The reference: every gradient, kept. L+1 gradients of memory, nothing to go wrong."""

import torch

from ddas_gpu.gradients.layer_rules import inner
from ddas_gpu.gradients.versions import Tensors, Versions, WeightedGradient


class ReferenceGradients:
    """g_l for l = 0..L, one ordinary backward pass each; what the other methods must equal."""

    def __init__(self, versions: Versions, weights: list[float]):
        leaves = versions.leaves()
        self._weights = weights
        losses, self._gradients = [], []
        for version in range(versions.count):
            loss = versions.loss(version, leaves)
            # A parameter the loss does not reach has gradient 0.
            scale = torch.full_like(loss, versions.loss_scale)
            gradients = torch.autograd.grad(
                loss, list(leaves.values()), scale, materialize_grads=True
            )
            if versions.loss_scale != 1:
                torch._foreach_mul_(gradients, 1 / versions.loss_scale)
            losses.append(loss.detach())
            del loss
            self._gradients.append(dict(zip(leaves, gradients, strict=True)))
        versions.keep_buffers()
        self.losses = torch.stack(losses)

    @torch.no_grad()
    def weighted(self) -> WeightedGradient:
        """Σ_l w_l g_l."""
        clean_weight, *weights = self._weights
        total = {name: clean_weight * gradient for name, gradient in self._gradients[0].items()}
        for weight, gradients in zip(weights, self._gradients[1:], strict=True):
            for name, gradient in gradients.items():
                total[name].add_(gradient, alpha=weight)
        return WeightedGradient(list(total), total, {})

    @torch.no_grad()
    def dot(self, direction: Tensors) -> torch.Tensor:
        """(L+1,): g_l · direction."""
        return torch.stack(
            [
                torch.stack([inner(g, direction[name]) for name, g in gradients.items()]).sum()
                for gradients in self._gradients
            ]
        )
