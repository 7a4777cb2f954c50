"""How many bytes of tensors are alive at the worst moment of some work.

Every storage that an operator of torch creates is followed until it dies, whatever it holds. What
was there before does not count, nor does the scratch memory inside an operator.
"""

import weakref
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from ddas_gpu.gradients import PolicyGradients
from ddas_gpu.gradients.plan import Plan
from ddas_gpu.gradients.survey import survey
from ddas_gpu.gradients.versions import Versions


class LiveBytes(TorchDispatchMode):
    """Follows the bytes alive in storages made since the start; `peak` is their most."""

    def __init__(self):
        super().__init__()
        self.alive = self.peak = 0
        self._followed: dict[int, int] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        outputs = function(*args, **(kwargs or {}))
        if not _returns_its_input(function):
            for tensor in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
                if isinstance(tensor, torch.Tensor):
                    self._follow(tensor.untyped_storage())
            self.peak = max(self.peak, self.alive)
        return outputs

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._followed:
            self._followed[key] = storage.nbytes()
            self.alive += storage.nbytes()
            weakref.finalize(storage, self._died, key)

    def _died(self, key: int) -> None:
        self.alive -= self._followed.pop(key)


@cache
def _returns_its_input(function: torch._ops.OpOverload) -> bool:
    """Views and in-place operators, whose outputs have no storage of their own."""
    return any(value.alias_info is not None for value in function._schema.returns)


@dataclass(frozen=True)
class StepBytes:
    """peak: the most at once. held: from the constructor to `dot`, the caller having let go."""

    peak: int
    held: int
    plan: Plan


def step_bytes(
    model: nn.Module,
    method: str,
    policies: int,
    batch: int,
    size: tuple[int, int],
    loss_fn=F.cross_entropy,
    targets=None,
    **options,
) -> StepBytes:
    """PolicyGradients, weighted and dot, on the model's device; the direction is the caller's."""
    parameters = dict(model.named_parameters())
    device = next(iter(parameters.values())).device
    images = torch.empty(policies + 1, batch, *size, 3, device=device).movedim(-1, 2)
    if device.type != "meta":
        images.normal_()
    if targets is None:
        targets = torch.zeros(batch, dtype=torch.long, device=device)
    direction = {name: torch.ones_like(p) for name, p in parameters.items() if p.requires_grad}
    weights = [0.65] + [0.35 / policies] * policies
    arguments = (model, loss_fn, images, targets, weights, method)
    survey(Versions(*arguments[:4]))  # is made in the first step only
    with LiveBytes() as live:
        gradients = PolicyGradients(*arguments, **options)
        gradients.weighted()
        held = live.alive
        gradients.dot(direction)
    return StepBytes(live.peak, held, gradients.plan)
