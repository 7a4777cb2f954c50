"""The weighted gradient Σ w_l g_l: handed out, and used again for one of the products."""

from collections.abc import Callable, Iterator, Mapping

import torch

from ddas_gpu.gradients.layer_rules import inner
from ddas_gpu.gradients.versions import Tensors


class WeightedGradient:
    """Parameter by parameter; some parts are computed when they are first asked for.

    ready   {name: gradient}
    due     {name: what computes it}
    """

    def __init__(
        self, names: list[str], ready: Tensors, due: Mapping[str, Callable[[], torch.Tensor]]
    ):
        self._names, self._parts, self._due = names, ready, dict(due)
        self._written = {name: part._version for name, part in ready.items()}

    def parts(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, gradient), one after the other: the very tensors that `product` will use."""
        for name in self._names:
            if name in self._due:
                with torch.no_grad():
                    self._parts[name] = self._due.pop(name)()
                self._written[name] = self._parts[name]._version
            yield name, self._parts[name]

    def product(self, direction: Tensors) -> torch.Tensor | None:
        """(Σ w_l g_l) · direction, or None if somebody has changed the gradient in place."""
        parts = dict(self.parts())
        if any(self._written[name] != part._version for name, part in parts.items()):
            return None
        return torch.stack([inner(part, direction[name]) for name, part in parts.items()]).sum()


CHANGED = (
    "the tensors that weighted() returned were changed in place before dot(), which needs them: "
    "clone them first"
)
