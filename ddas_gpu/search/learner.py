"""The network of a search: its weights θ, their SGD, and the gradient of the validation loss."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ddas_gpu.distributed.ranks import MeanGradient, Ranks
from ddas_gpu.gradients.layer_rules import call_with
from ddas_gpu.gradients.versions import FLOAT16_SCALE
from ddas_gpu.runs.network import make_sgd, mixed_precision
from ddas_gpu.tasks.task import Task

T = TypeVar("T")
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Learner:
    """What is learned beside α.

    training: the settings of the optimizer, and `amp`. memory and statistics: --val-memory and
    --val-statistics.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        training: Any,
        memory: float,
        statistics: str,
        device: torch.device,
        ranks: Ranks,
    ) -> None:
        self.model, self.task, self.device, self.ranks = model, task, device, ranks
        self.names = [name for name, p in model.named_parameters() if p.requires_grad]
        self.weights = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = make_sgd(self.weights, training)
        self.mixed, self.half = mixed_precision(training.amp, device)
        self.memory, self.statistics = memory, statistics
        self.direction: dict[str, torch.Tensor] = {}  # the running mean of g_val
        self.remembered = 0  # gradients in it

    @property
    def precision(self) -> str:
        """The type that the network computes in: "float32", "bfloat16" or "float16"."""
        return str(self.half if self.mixed else torch.float32).removeprefix("torch.")

    @property
    def parameter_count(self) -> int:
        """How many numbers are learned."""
        return sum(weight.numel() for weight in self.weights)

    def autocast(self) -> AbstractContextManager[None]:
        """Compute in 16 bits inside, where --amp says so."""
        return torch.autocast(self.device.type, self.half, enabled=self.mixed)

    def mean_gradient(self, last_layer_first: bool = False) -> MeanGradient:
        """Return the all-reduce of a gradient of the weights, whose parts come in this order."""
        pairs = list(zip(self.names, self.weights, strict=True))
        return MeanGradient(self.ranks, dict(pairs[::-1] if last_layer_first else pairs))

    def descend(self, gradient: dict[str, torch.Tensor], learning_rate: float) -> None:
        """Update θ_t to θ_{t+1}: one step of SGD with momentum along `gradient`."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        for name, weight in zip(self.names, self.weights, strict=True):
            weight.grad = gradient[name]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def validation_gradient(
        self, inputs: torch.Tensor, targets: Any
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return L_val and its gradient g_val at the present θ.

        Beside L_val there is what else the task measures, such as the accuracy. Both are with the
        batch's own statistics in batch norm; g_val is as --val-statistics says.
        """

        def once() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            return self._validation_pass(inputs, targets)

        return with_statistics(self.statistics, self.model, once)

    def _validation_pass(
        self, inputs: torch.Tensor, targets: Any
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the numbers of one validation pass, and the gradient of its loss.

        The pass runs on copies of the buffers, because the running statistics are the clean
        batches'. Each layer's gradient is all-reduced while the layers before it are computed.
        """
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        with self.autocast():
            outputs = call_with(self.model, buffers, inputs)
            loss = self.task.loss(outputs, targets)
        gradient = self.mean_gradient(last_layer_first=True)
        scale = FLOAT16_SCALE if self.mixed and self.half is torch.float16 else 1.0

        def add(name: str, part: torch.Tensor) -> None:
            gradient.add(name, part if scale == 1 else part / scale)

        hooks = [
            weight.register_hook(partial(add, name))
            for name, weight in zip(self.names, self.weights, strict=True)
        ]
        parts = torch.autograd.grad(loss * scale, self.weights, allow_unused=True)
        for hook in hooks:
            hook.remove()
        for name, weight, part in zip(self.names, self.weights, parts, strict=True):
            if part is None:  # a weight that the loss does not depend on
                gradient.add(name, torch.zeros_like(weight))
        numbers = [loss.detach(), *self.task.measure(outputs, targets)]
        return torch.stack([number.double() for number in numbers]), gradient.result()

    def remember(self, gradient: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the direction that rewards are measured along: a running mean of g_val."""
        if not self.memory:
            return gradient
        self.remembered += 1
        self.direction = running_mean(self.direction, gradient, self.remembered, self.memory)
        return self.direction

    def identity(self) -> str:
        """Return the network in words, with a checksum of the shapes of its weights."""
        shapes = {name: tuple(value.shape) for name, value in self.model.state_dict().items()}
        network = f"{type(self.model).__qualname__} of {self.parameter_count:,} parameters"
        return f"{network} ({zlib.crc32(repr(shapes).encode()):08x})"

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "direction": self.direction,
            "remembered": self.remembered,
            "precision": self.precision,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        direction = state["direction"].items()
        self.direction = {name: part.to(self.device) for name, part in direction}
        self.remembered = state["remembered"]
        # As the run was begun, also on another device; checkpoints of 0.2.0 do not say it.
        precision = PRECISIONS[state.get("precision", self.precision)]
        self.mixed = precision is not torch.float32
        self.half = precision if self.mixed else self.half


def with_statistics(
    statistics: str,
    model: nn.Module,
    validation_pass: Callable[[], tuple[T, dict[str, torch.Tensor]]],
) -> tuple[T, dict[str, torch.Tensor]]:
    """Return the result of a pass, and its gradient with the batch norm of --val-statistics."""
    result, gradient = validation_pass()
    norms = [layer for layer in model.modules() if has_running_statistics(layer)]
    if statistics == "both" and norms:
        with in_evaluation(norms):
            _, running = validation_pass()
        gradient = mean_of_units(gradient, running)
    return result, gradient


def has_running_statistics(layer: nn.Module) -> bool:
    """Whether a layer is batch norm in training mode that will be evaluated with running means."""
    return isinstance(layer, _BatchNorm) and layer.training and layer.track_running_stats


@contextmanager
def in_evaluation(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Put layers into evaluation mode, and back into training mode."""
    try:
        for layer in layers:
            layer.training = False
        yield
    finally:
        for layer in layers:
            layer.training = True


def mean_of_units(
    first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the mean of two gradients, each divided by its length; one of zeros adds nothing."""
    scales = []
    for gradient in (first, second):
        length = torch.stack([part.norm() for part in gradient.values()]).norm()
        scales.append(0.5 / torch.where(length > 0, length, torch.inf))
    return {name: scales[0] * first[name] + scales[1] * second[name] for name in first}


def running_mean(
    mean: dict[str, torch.Tensor], gradient: dict[str, torch.Tensor], count: int, decay: float
) -> dict[str, torch.Tensor]:
    """Return the mean with one more gradient in it, number `count`; an empty one begins with it.

    It is the plain mean until `decay` gives the newest gradient a larger share than that.
    """
    if not mean:
        mean = {name: part.clone() for name, part in gradient.items()}
    share = max(1 / count, 1 - decay)
    for name, part in mean.items():
        part.lerp_(gradient[name], share)
    return mean
