"""The L+1 versions of one batch, and how one of them is sent through the model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from ddas_gpu.gradients.randomness import RandomState

Tensors = dict[str, torch.Tensor]


class Versions:
    """A batch under L policies, row 0 clean, with the model and the loss that judge it.

    Every pass works on its own copy of the model's buffers, so that no version sees what another
    one wrote and an exception leaves the model as it was. The running statistics of batch norm
    (and any other buffer a forward pass writes) reach the model in `keep_buffers`: once, from
    the clean batch, when all versions have passed.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any, Any], torch.Tensor],
        images: torch.Tensor,
        targets: Any,
    ):
        if images.dim() != 5:
            raise ValueError(
                "images must be (L+1, B, C, H, W), row 0 the clean batch; "
                f"got {tuple(images.shape)}"
            )
        if images.shape[0] == 0 or images.shape[1] == 0:
            raise ValueError(f"images hold no version or no image: {tuple(images.shape)}")
        self.model = model
        self.loss_fn = loss_fn
        self.images = images.detach()
        self.count = images.shape[0]
        self.targets = _targets_by_version(targets, self.count, images.shape[1])
        self.parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        if not self.parameters:
            raise ValueError(f"{type(model).__name__} has no parameter that requires a gradient")
        self._start = RandomState(images.device)
        self._random_states: list[RandomState] = []
        self._buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}

    def losses_in_turn(
        self, parameters: Tensors | None = None, during: Sequence[AbstractContextManager] = ()
    ) -> Iterator[torch.Tensor]:
        """Yield every version's loss, then write the clean batch's buffers to the model.

        `parameters` stand in for the model's own; `during[l]` is active in the pass of version l.
        """
        self._random_states = []
        clean_buffers = self.copy_buffers()
        for version in range(self.count):
            self._random_states.append(RandomState(self.images.device))
            with during[version] if during else nullcontext():
                loss = self._loss(version, parameters, clean_buffers if version == 0 else None)
            yield loss
        self.keep_buffers(clean_buffers)

    def loss_again(self, version: int, parameters: Tensors) -> torch.Tensor:
        """The loss of a version that has passed, with the same random numbers as then."""
        with self._random_states[version].replayed():
            return self._loss(version, parameters, None)

    def _loss(
        self, version: int, parameters: Tensors | None, buffers: Tensors | None
    ) -> torch.Tensor:
        state = {**(parameters or {}), **(buffers or self.copy_buffers())}
        with torch.enable_grad():
            outputs = functional_call(self.model, state, (self.images[version],))
            return self.loss_of(version, outputs)

    def loss_of(self, version: int, outputs: Any) -> torch.Tensor:
        """The scalar loss of one version whose outputs are at hand."""
        loss = self.loss_fn(outputs, self.targets[version])
        if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
            found = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ValueError(f"loss_fn must return one number per batch (shape ()), got {found}")
        return loss

    def rewind(self) -> None:
        """Give back the random numbers drawn so far: another method is going to make the passes."""
        self._start.restore()

    def copy_buffers(self) -> Tensors:
        """The model's buffers as they were before any pass."""
        return {name: buffer.clone() for name, buffer in self._buffers.items()}

    def keep_buffers(self, buffers: Tensors) -> None:
        """Write the buffers of the clean batch's pass to the model."""
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                buffer.copy_(buffers[name])


def _targets_by_version(targets: Any, count: int, batch_size: int) -> list[Any]:
    """One entry a version: a list or tuple already is that; anything else serves all versions."""
    if isinstance(targets, (list, tuple)):
        if len(targets) != count:
            raise ValueError(
                f"a list of targets has one entry per version: images have {count} versions, "
                f"targets {len(targets)}; pass a tensor or a dict to share targets between versions"
            )
        return list(targets)
    if isinstance(targets, torch.Tensor) and targets.shape[:1] != (batch_size,):
        raise ValueError(
            f"targets shared by all versions need one row per image: images have batch size "
            f"{batch_size}, targets have shape {tuple(targets.shape)}"
        )
    return [targets] * count
