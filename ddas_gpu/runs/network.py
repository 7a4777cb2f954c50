"""The network of a run and its SGD: the same in the search and in training."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import nn

from ddas_gpu import streams
from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.models.synced_batch_norm import sync_batch_norm
from ddas_gpu.streams import Stream
from ddas_gpu.tasks.task import Task

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
USUAL_HALF = {"cpu": "bf16", "cuda": "fp16"}


class SgdSettings(Protocol):
    @property
    def lr(self) -> float: ...
    @property
    def lr_schedule(self) -> str: ...
    @property
    def lr_steps(self) -> tuple[int, ...]: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...


def open_network(task: Task, class_names: tuple[str, ...], run: Any, ranks: Ranks) -> nn.Module:
    """Return a new network in training mode; `run` has the settings of the run."""
    torch.manual_seed(streams.number(run.seed, Stream.WEIGHTS))
    model = task.build_model(class_names)
    # Channels last in memory: a third faster on a CPU, and what a GPU's tensor cores want.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if run.sync_norm and ranks.count > 1:
        sync_batch_norm(model)
    return model.train()


def make_sgd(weights: Iterable[nn.Parameter], settings: SgdSettings) -> torch.optim.SGD:
    """Return the optimizer of a network's weights."""
    momentum, decay = settings.momentum, settings.weight_decay
    return torch.optim.SGD(weights, settings.lr, momentum=momentum, weight_decay=decay)


def learning_rate(settings: SgdSettings, step: int, total: int, steps_per_epoch: int) -> float:
    """Return the learning rate of a step, one of `total`.

    "cosine" goes from --lr to 0 along a cosine; "step" multiplies by 0.1 at each of --lr-steps.
    """
    if settings.lr_schedule == "cosine":
        return 0.5 * settings.lr * (1 + math.cos(math.pi * step / total))
    return settings.lr * 0.1 ** sum(step // steps_per_epoch >= epoch for epoch in settings.lr_steps)


def mixed_precision(amp: str, device: torch.device) -> tuple[bool, torch.dtype]:
    """Return whether --amp computes in 16 bits on this device, and in which type."""
    usual = USUAL_HALF[device.type]
    if amp in HALF:
        return True, HALF[amp]
    return amp == "on" or (amp == "auto" and device.type == "cuda"), HALF[usual]
