"""The validation images of `OnlineSearch`, and the gradient of their loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ddas_gpu import streams
from ddas_gpu.data.datasets import ExampleArrays, collate
from ddas_gpu.gradients.layer_rules import call_with
from ddas_gpu.gradients.versions import one_number
from ddas_gpu.pipelines.example_feed import to_device
from ddas_gpu.search.learner import running_mean, with_statistics
from ddas_gpu.streams import Stream

STATISTICS = ("batch", "both")
Gradient = dict[str, torch.Tensor]


class HeldOut:
    """Random batches of examples in memory, and the running mean of the gradients at them.

    statistics and memory: as --val-statistics and --val-memory.
    """

    def __init__(
        self, examples: ExampleArrays, batch_size: int, seed: int, statistics: str, memory: float
    ) -> None:
        if statistics not in STATISTICS:
            raise ValueError(
                f"val_statistics is one of {', '.join(STATISTICS)}, not {statistics!r}"
            )
        self.examples, self.batch_size, self.seed = examples, min(batch_size, len(examples)), seed
        self.statistics, self.memory = statistics, memory
        self.direction: Gradient = {}  # what rewards are measured along: the mean of g_val
        self.remembered = 0  # gradients in it

    def batch(self, number: int, device: torch.device) -> tuple[torch.Tensor, Any]:
        """Return the pixels (B, H, W, 3) and the targets of a random batch."""
        generator = streams.generator(self.seed, Stream.VALIDATION_ORDER, number)
        chosen = generator.choice(len(self.examples), self.batch_size, replace=False)
        pixels = torch.from_numpy(self.examples.images[chosen]).to(device)
        targets = collate([self.examples.targets[index] for index in chosen])
        return pixels, to_device(targets, device)

    def remember(
        self,
        model: nn.Module,
        loss: Callable[[Any, Any], torch.Tensor],
        inputs: torch.Tensor,
        targets: Any,
    ) -> Gradient:
        """Return the running mean with the gradient g_val of a batch at the present θ in it."""

        def once() -> tuple[None, Gradient]:
            return None, gradient(model, loss, inputs, targets)

        _, newest = with_statistics(self.statistics, model, once)
        self.remembered += 1
        self.direction = running_mean(self.direction, newest, self.remembered, self.memory)
        return self.direction

    def state_dict(self) -> dict[str, Any]:
        return {"direction": self.direction, "remembered": self.remembered}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        direction = state["direction"].items()
        self.direction = {name: part.to(device) for name, part in direction}
        self.remembered = state["remembered"]


def gradient(
    model: nn.Module,
    loss: Callable[[Any, Any], torch.Tensor],
    inputs: torch.Tensor,
    targets: Any,
) -> Gradient:
    """Return the gradient of a loss at the present θ, on copies of the buffers."""
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.enable_grad():
        outputs = call_with(model, buffers, inputs)
        value = one_number(loss(outputs, targets))
        parts = torch.autograd.grad(value, list(weights.values()), allow_unused=True)
    return {
        name: torch.zeros_like(weight) if part is None else part
        for (name, weight), part in zip(weights.items(), parts, strict=True)
    }
