"""The fast way: one backward pass a version, no gradients of big weights until they are asked for.

Two kinds of parameters, told apart by `_choose_captured`:

kept        small ones: each version's gradient is stored, all together in less than one gradient
            of the model. Biases, norms, and as many of the smaller weights as fit: in a
            convolutional network these see the most pixels, so a little memory saves much time.
captured    the big weights W: of each layer with output(a; W) that uses one, its input a and its
            output's cotangent b are stored instead. Then  ∂loss_l/∂W · v = ⟨b_l, output(a_l; v)⟩,
            one forward through the layer, with v in the place of the weight.

Neither needs the parameters again, so an optimizer may step them in place before `dot`. All
random numbers are drawn once, in the constructor; nothing is replayed.
"""

from collections.abc import Callable, Iterable, Iterator
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn

from ddas_gpu.gradients.capture import CapturedCall
from ddas_gpu.gradients.passes import CannotFold, UsedElsewhere, fold, folding_pays, in_turn
from ddas_gpu.gradients.versions import Tensors, Versions

# Parameters found to be used outside the layer rules, by model: found once, not in every step.
_uncovered: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()
_unfoldable: WeakSet[nn.Module] = WeakSet()


class UncoveredLayer(Exception):
    """Parameters too big to keep a gradient of per version, and no layer rule for their use."""

    def __init__(self, names: Iterable[str]):
        super().__init__(", ".join(sorted(names)))


class LayerwiseGradients:
    """g_l in the two forms above; `folded=None` decides whether all versions make one pass."""

    def __init__(self, versions: Versions, folded: bool | None = None):
        self._shapes = {name: p.shape for name, p in versions.parameters.items()}
        if folded is None and folding_pays(versions) and versions.model not in _unfoldable:
            try:
                self._run(versions, fold, keep_small_weights=False)
            except CannotFold:
                _unfoldable.add(versions.model)
                versions.rewind()
            else:
                return
        self._run(versions, fold if folded else in_turn, keep_small_weights=not folded)

    def _run(self, versions: Versions, passes: Callable, keep_small_weights: bool) -> None:
        uncovered = _uncovered.setdefault(versions.model, set())
        while True:
            captured = _choose_captured(versions, uncovered, keep_small_weights)
            self._kept_names = [name for name in versions.parameters if name not in captured]
            try:
                self.losses, self._kept, self._calls = passes(versions, captured)
                return
            except UsedElsewhere as error:  # then keep their gradients, if they are small enough
                versions.rewind()
                uncovered |= error.names

    def weighted(self, weights: torch.Tensor) -> Tensors:
        """{name: Σ_l w_l g_l}, weights (L+1,)."""
        parts = dict(self.weighted_parts(weights))
        return {name: parts[name] for name in self._shapes}

    @torch.no_grad()
    def weighted_parts(self, weights: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """The same as (name, gradient): first what is kept, then one big weight after another."""
        yield from self._split(weights.to(self._kept) @ self._kept).items()
        calls: dict[str, list[CapturedCall]] = {
            name: [] for name in self._shapes if name not in self._kept_names
        }
        for call in self._calls:
            calls[call.parameter].append(call)
        for name, uses in calls.items():
            if not uses:
                yield name, self._kept.new_zeros(self._shapes[name])
                continue
            gradient = uses[0].weight_gradient(weights)
            for call in uses[1:]:
                # Added without a name of its own: it would live on while the next is computed.
                gradient += call.weight_gradient(weights)
            yield name, gradient
            del gradient

    def _split(self, flat: torch.Tensor) -> Tensors:
        """(n,) kept values -> {name: tensor}, views of it."""
        sizes = [self._shapes[name].numel() for name in self._kept_names]
        return {
            name: values.view(self._shapes[name])
            for name, values in zip(self._kept_names, flat.split(sizes), strict=True)
        }

    @torch.no_grad()
    def dot(self, direction: Tensors) -> torch.Tensor:
        """(L+1,): g_l · direction."""
        flat = [direction[name].reshape(-1) for name in self._kept_names]
        dots = self._kept @ torch.cat(flat) if flat else self._kept.new_zeros(len(self.losses))
        for call in self._calls:
            dots[call.versions] += call.dot(direction)
        return dots


def _choose_captured(versions: Versions, uncovered: set[str], keep_small_weights: bool) -> Tensors:
    """The parameters to capture; the others' gradients are kept, for every version."""
    sizes = {name: parameter.numel() for name, parameter in versions.parameters.items()}
    # The rows to keep, and one more: the gradients of the version that is being computed.
    affordable = sum(sizes.values()) // (versions.count + 1)
    kept = {n for n, p in versions.parameters.items() if p.dim() < 2 or n in uncovered}
    affordable -= sum(sizes[name] for name in kept)
    if affordable < 0:
        raise UncoveredLayer(uncovered or kept)
    if keep_small_weights:
        for name in sorted(sizes.keys() - kept, key=lambda name: (sizes[name], name)):
            affordable -= sizes[name]
            if affordable < 0:
                break
            kept.add(name)
    return {name: p for name, p in versions.parameters.items() if name not in kept}
