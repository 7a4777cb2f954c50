"""An exponential moving average of a network's weights, which often tests better than they do."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class MovingAverage:
    """average ← decay · average + (1 − decay) · weight, after every step; buffers too.

    In the first steps the decay is smaller, (1 + n) / (10 + n), so that the random weights of the
    beginning are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self.tensors = {name: value.clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        current = model.state_dict()
        floating = [name for name, value in current.items() if value.is_floating_point()]
        averages = [self.tensors[name] for name in floating]
        torch._foreach_lerp_(averages, [current[name] for name in floating], 1 - decay)
        for name in current.keys() - set(floating):  # batch norm counts its batches
            self.tensors[name].copy_(current[name])

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, "tensors": self.tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        for name, value in state["tensors"].items():
            self.tensors[name].copy_(value)
