"""`OnlineSearch`: the step of the search inside a user's own training loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from torch.utils._pytree import tree_map

from ddas_gpu import ops, streams
from ddas_gpu.data.datasets import COLUMNS, collate, one_size, open_examples
from ddas_gpu.errors import Diverged
from ddas_gpu.gradients import PolicyGradients
from ddas_gpu.pipelines.example_feed import to_device
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.search.alpha import AugmentationParameters, draw_policies, rewards
from ddas_gpu.search.presets import sized_space
from ddas_gpu.space import SearchSpace
from ddas_gpu.streams import Stream
from ddas_gpu.tasks.custom import LossOnly, SearchTask, Trial
from ddas_gpu.tasks.task import unchanged

MEMORY = 0.95  # of the running mean of Σ|r|, per step of the search


def is_channels_last(images: torch.Tensor) -> bool:
    """Return whether a batch is (B, H, W, 3), not (B, 3, H, W)."""
    return images.shape[-1] == 3


def to_unit_interval(images: torch.Tensor) -> torch.Tensor:
    """Return a uint8 batch of either layout as floats in [0, 1], (B, 3, H, W)."""
    images = images.permute(0, 3, 1, 2) if is_channels_last(images) else images
    return images.float() / 255


@dataclass(frozen=True)
class _Begun:
    """A step whose policies wait for the validation gradient."""

    policies: np.ndarray
    gradients: PolicyGradients
    unchanged: torch.Tensor


class OnlineSearch:
    """Learns the policy during the training that uses it, instead of on a proxy task.

        online = ddas_gpu.OnlineSearch(model, F.cross_entropy, validation, every=8)
        for epoch in range(epochs):
            for images, labels in batches:  # uint8 (B, 3, H, W) or (B, H, W, 3)
                online.step(images, labels)
                inputs = prepare(online.augment(images))
                ...  # forward, backward, optimizer.step()
            online.end_epoch()
        online.policy.save("policy.json")

    Every `every`-th `step` compares the gradients of `policies` (L̂) policies on the first
    `batch_size` images with that of the clean images. The next call, after the optimizer's step,
    computes the gradient of `val_batch_size` validation images at the new weights and moves the
    probabilities. Weights, buffers, gradients and torch's generators are left as they are.

    model: the network that is trained, in training mode.
    loss: loss(outputs, targets), or a `SearchTask` for targets that move with the pixels.
    validation: data as `search_policy` takes it; it is read into memory.
    space: a preset, for images of any size, or a SearchSpace.
    prepare: what turns a uint8 batch, in the layout of your batches, into the network's inputs; by
        default floats in [0, 1].
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Any, Any], torch.Tensor] | SearchTask,
        validation: Any,
        space: str | SearchSpace = "cifar",
        *,
        every: int = 8,
        policies: int = 1,
        batch_size: int = 16,
        val_batch_size: int = 32,
        prepare: Callable[[torch.Tensor], torch.Tensor] = to_unit_interval,
        apply_probability: float = 0.35,
        lr_ops: float = 0.02,
        lr_apply: float = 0.004,
        gradients: str = "auto",
        columns: tuple[str, str] = COLUMNS,
        workers: int = 1,
        seed: int = 0,
    ) -> None:
        for name, value in {"every": every, "policies": policies, "batch_size": batch_size}.items():
            if value < 1:
                raise ValueError(f"{name} must be above 0, not {value}")
        if distributed.is_initialized() and distributed.get_world_size() > 1:
            raise ValueError("OnlineSearch runs in one process: its ranks would learn apart")
        self.model, self.prepare, self.method, self.seed = model, prepare, gradients, seed
        self.task = loss if isinstance(loss, SearchTask) else LossOnly(loss)
        self.every, self.policies, self.batch_size = every, policies, batch_size
        examples = open_examples(validation, columns, seed)
        size = one_size(examples)
        if size is None:
            raise ValueError("validation images must have one size, that of the training batches")
        self._validation = examples.in_memory(workers, size)
        self._val_batch_size = min(val_batch_size, len(self._validation))
        self.space = sized_space(space, min(size)) if isinstance(space, str) else space
        self.parameters = AugmentationParameters(
            len(self.space), apply_probability, lr_ops=lr_ops, lr_apply=lr_apply
        )
        self.steps = self.searches = self.augmented = 0  # calls and steps of the search so far
        self.history: list[tuple[float, np.ndarray]] = []  # (p_tp, p_o) after each epoch
        self._mean_total = 0.0  # of Σ|r|
        self._begun: _Begun | None = None
        self._channels_first = True

    def step(self, images: torch.Tensor, targets: Any) -> None:
        """Learn from a batch. Call it once per step of your optimizer, before the forward pass."""
        self._finish()
        if self.steps % self.every == 0:
            self._begin(images, targets)
        self.steps += 1

    @torch.no_grad()
    def augment(self, images: torch.Tensor) -> torch.Tensor:
        """Return a uint8 batch under the present policy, every image with its own draws."""
        pixels = self._as_pixels(images)
        samples = np.arange(len(pixels))
        now = self._schedule([self._now()])
        chosen = now.draw(self.augmented, 1, self.seed, samples)
        key = streams.sign_key(self.seed, self.augmented)
        self.augmented += 1
        return self._as_given(ops.augment(pixels, chosen, self.space, key, samples=samples))

    def end_epoch(self) -> None:
        """Add the present probabilities to the schedule."""
        self._finish()
        self.history.append(self._now())

    @property
    def policy(self) -> PolicySchedule:
        """The schedule of the finished epochs; before the first, the present probabilities."""
        self._finish()
        return self._schedule(self.history or [self._now()])

    def _now(self) -> tuple[float, np.ndarray]:
        return self.parameters.apply_probability, self.parameters.op_probabilities

    def _schedule(self, rows: list[tuple[float, np.ndarray]]) -> PolicySchedule:
        p_tp, p_o = zip(*rows, strict=True)
        names = ("every", "policies", "batch_size", "seed")
        settings = {
            "data": self._validation.name,
            "model": f"{type(self.model).__module__}.{type(self.model).__qualname__}",
            "online": {name: getattr(self, name) for name in names} | {"steps": self.steps},
        }
        return PolicySchedule(self.space, np.array(p_tp), np.stack(p_o), settings)

    # Algorithm 1, with the user's step from θ_t to θ_{t+1} between its halves.

    def _begin(self, images: torch.Tensor, targets: Any) -> None:
        """Compute g_0 … g_L̂ at θ_t."""
        pixels = self._as_pixels(images)[: self.batch_size]
        count = len(pixels)
        targets = tree_map(lambda t: t[:count] if torch.is_tensor(t) else t, targets)
        generator = streams.generator(self.seed, Stream.POLICIES, self.searches)
        policies = draw_policies(generator, self.policies, self.space.depth, len(self.space))
        # Not the key of the training's own draws.
        key = streams.number(self.seed, Stream.EXAMPLES, self.searches)
        trial = Trial(policies, self.space, key, np.arange(count))
        versions, targets = self.task.versions(pixels, targets, trial)
        inputs = torch.stack([self.prepare(self._as_given(version)) for version in versions])
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        with torch.random.fork_rng(), torch.enable_grad():
            # The user's own step is along another gradient: any weights will do.
            even = [1 / len(inputs)] * len(inputs)
            gradients = PolicyGradients(
                self.model, self.task.loss, inputs, targets, even, method=self.method
            )
        with torch.no_grad():
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        self._begun = _Begun(policies, gradients, unchanged(versions))

    def _finish(self) -> None:
        """Compute g_val at θ_{t+1} and move α, if a step has begun."""
        if self._begun is None:
            return
        begun, self._begun = self._begun, None
        names, weights = zip(
            *((n, p) for n, p in self.model.named_parameters() if p.requires_grad), strict=True
        )
        inputs, targets = self._validation_batch(weights[0].device)
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        with torch.random.fork_rng(), torch.enable_grad():
            outputs = torch.func.functional_call(self.model, buffers, (inputs,))
            loss = self.task.loss(outputs, targets)
            parts = torch.autograd.grad(loss, weights, allow_unused=True)
        direction = {
            name: torch.zeros_like(weight) if part is None else part
            for name, weight, part in zip(names, weights, parts, strict=True)
        }
        reward = rewards(begun.gradients.dot(direction).to("cpu", torch.float64))
        if not reward.isfinite().all():
            raise Diverged(f"a gradient is no longer finite in step {self.steps} of the training")
        reward[begun.unchanged.cpu()] = 0.0  # exactly, without rounding; see `Search.step`
        self.parameters.update(begun.policies, reward, self._scale(reward.abs().sum().item()))
        self.searches += 1

    def _scale(self, total: float) -> float:
        """Return Z_g: the running mean of Σ|r|, not the step's own.

        Divided by its own Σ|r|, the reward of a single policy would be ±1 whatever it was.
        """
        share = max(1 / (self.searches + 1), 1 - MEMORY)
        self._mean_total += share * (total - self._mean_total)
        return max(self._mean_total, torch.finfo(torch.float64).tiny)

    def _validation_batch(self, device: torch.device) -> tuple[torch.Tensor, Any]:
        """Return the inputs and targets of a random batch."""
        generator = streams.generator(self.seed, Stream.VALIDATION_ORDER, self.searches)
        source = self._validation
        chosen = generator.choice(len(source), self._val_batch_size, replace=False)
        pixels = torch.from_numpy(source.images[chosen]).to(device)
        targets = to_device(collate([source.targets[index] for index in chosen]), device)
        return self.prepare(self._as_given(pixels)), targets

    def _as_pixels(self, images: torch.Tensor) -> torch.Tensor:
        """Return a user's batch as (B, H, W, 3), and remember its layout."""
        if images.dtype != torch.uint8 or images.ndim != 4 or 3 not in images.shape[1::2]:
            raise ValueError(
                "images are a uint8 batch (B, 3, H, W) or (B, H, W, 3), before any normalisation, "
                f"not {images.dtype} of the shape {tuple(images.shape)}"
            )
        self._channels_first = not is_channels_last(images)
        return images.permute(0, 2, 3, 1).contiguous() if self._channels_first else images

    def _as_given(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return (B, H, W, 3) in the layout of the user's batches."""
        return pixels.permute(0, 3, 1, 2).contiguous() if self._channels_first else pixels

    def state_dict(self) -> dict[str, Any]:
        """Return what the next step depends on. Save it after the optimizer's step."""
        self._finish()
        return {
            "steps": self.steps,
            "searches": self.searches,
            "augmented": self.augmented,
            "channels_first": self._channels_first,
            "mean_total": self._mean_total,
            "parameters": self.parameters.state_dict(),
            "history": [(p_tp, torch.from_numpy(p_o)) for p_tp, p_o in self.history],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self._begun = None
        self.steps, self.searches = state["steps"], state["searches"]
        self.augmented, self._channels_first = state["augmented"], state["channels_first"]
        self._mean_total = state["mean_total"]
        self.parameters.load_state_dict(state["parameters"])
        self.history = [(p_tp, p_o.numpy()) for p_tp, p_o in state["history"]]
