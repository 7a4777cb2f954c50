"""`PolicyGradients`: the one name the search needs; the methods behind it are interchangeable."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch import nn

from ddas_gpu.gradients.forward_mode import ForwardModeGradients
from ddas_gpu.gradients.layerwise import LayerwiseGradients, UncoveredLayer
from ddas_gpu.gradients.reference import ReferenceGradients
from ddas_gpu.gradients.versions import Versions

METHODS = ("auto", "jvp", "layerwise", "reference")

_models_warned_about: WeakSet[nn.Module] = WeakSet()


class PolicyGradients:
    """Gradients g_l of the loss on L+1 versions of a batch, at the parameters of this moment.

    images   (L+1, B, C, H, W), row 0 the clean batch.
    targets  what `loss_fn(model(images[l]), targets)` takes: a list or tuple has one entry for
             each version; a tensor (B, ...), a dict or any other object serves all versions.
    method   "layerwise" (fast), "jvp" (any model that supports forward-mode derivatives, least
             memory), "reference" (keeps L+1 gradients), or "auto": layer-wise where it can.

    Every version has its own batch-norm statistics. Running statistics, and all other buffers,
    are updated once, here, from the clean batch alone. A model that draws random numbers from
    torch's generators (dropout) draws anew for each version, in the versions' order; the
    gradients of all methods are those of these draws.

    >>> gradients = PolicyGradients(model, F.cross_entropy, images, labels)
    >>> for name, gradient in gradients.weighted(weights).items(): ...
    >>> optimizer.step()
    >>> products = gradients.dot(validation_gradient)   # still of the parameters before the step
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any, Any], torch.Tensor],
        images: torch.Tensor,
        targets: Any,
        method: str = "auto",
    ):
        if method not in METHODS:
            raise ValueError(f"unknown method {method!r}; there are: {', '.join(METHODS)}")
        versions = Versions(model, loss_fn, images, targets)
        self._shapes = {name: p.shape for name, p in versions.parameters.items()}
        if method == "reference":
            self._gradients = ReferenceGradients(versions)
        elif method == "jvp":
            self._gradients = ForwardModeGradients(versions)
        else:
            self._gradients = _layerwise_or_forward_mode(versions)
        self.losses: torch.Tensor = self._gradients.losses
        """(L+1,): the loss of each version."""

    def weighted(self, weights: torch.Tensor | Sequence[float]) -> dict[str, torch.Tensor]:
        """{name: Σ_l w_l g_l} for the parameters that require gradients; weights (L+1,)."""
        return self._gradients.weighted(self._one_a_version(weights))

    def weighted_parts(
        self, weights: torch.Tensor | Sequence[float]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """The same as (name, gradient), each as soon as it is computed, in any order."""
        return self._gradients.weighted_parts(self._one_a_version(weights))

    def _one_a_version(self, weights: torch.Tensor | Sequence[float]) -> torch.Tensor:
        weights = torch.as_tensor(weights, dtype=self.losses.dtype, device=self.losses.device)
        if weights.shape != self.losses.shape:
            raise ValueError(
                f"one weight per version, please: {len(self.losses)} versions, "
                f"weights of shape {tuple(weights.shape)}"
            )
        return weights.detach()

    def dot(self, direction: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """(L+1,): g_l · direction, for a direction with the names `weighted` returns."""
        missing = sorted(self._shapes.keys() - direction.keys())
        extra = sorted(direction.keys() - self._shapes.keys())
        if missing or extra:
            raise ValueError(
                "the direction must name exactly the parameters that require gradients; "
                f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(extra) or 'none'}"
            )
        for name, shape in self._shapes.items():
            if direction[name].shape != shape:
                raise ValueError(
                    f"direction[{name!r}] has shape {tuple(direction[name].shape)}, "
                    f"the parameter {tuple(shape)}"
                )
        return self._gradients.dot({name: direction[name].detach() for name in self._shapes})


def _layerwise_or_forward_mode(versions: Versions) -> LayerwiseGradients | ForwardModeGradients:
    """The fast method, or the general one for a model it does not know; says so once a model."""
    try:
        return LayerwiseGradients(versions)
    except UncoveredLayer as error:
        versions.rewind()
        if versions.model not in _models_warned_about:
            _models_warned_about.add(versions.model)
            warnings.warn(
                f"no layer rule covers how {type(versions.model).__name__} uses {error}; "
                "its gradient products are computed with jvp, which is slower",
                stacklevel=3,
            )
        return ForwardModeGradients(versions)
