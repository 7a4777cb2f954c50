"""`OnlineSearch`: the step of the search inside a user's own training loop."""

from __future__ import annotations

import zlib
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
from ddas_gpu.gradients import version_products
from ddas_gpu.gradients.versions import RandomState
from ddas_gpu.pipelines.example_feed import to_device
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.search.alpha import AugmentationParameters, apply_rate, deal_policies, rewards
from ddas_gpu.search.learner import running_mean
from ddas_gpu.search.presets import sized_space
from ddas_gpu.space import SearchSpace, check_space
from ddas_gpu.streams import Stream, sign_key
from ddas_gpu.tasks.custom import (
    LossOnly,
    PerImage,
    SearchTask,
    Trial,
    bare,
    checked_versions,
    loss_name,
    require_weights,
)
from ddas_gpu.tasks.task import unchanged

STEPS = 5_000  # of a training that does not say how many it has
EVERY = 64  # steps of a training per search: below 10 % of the time, even of small networks
MOST_SEARCHES = 600  # about as many as an offline search of the digits has


def early(steps: int) -> tuple[int, int, int]:
    """Return warmup, every and searches: as many as one in `EVERY` steps, but close together.

    Rewards are largest soon after the network has learned a little from images as they are.
    """
    return steps // 30, 4, min(max(1, steps // EVERY), MOST_SEARCHES)


def is_channels_last(images: torch.Tensor) -> bool:
    """Return whether a batch is (B, H, W, 3), not (B, 3, H, W)."""
    return images.shape[-1] == 3


def to_unit_interval(images: torch.Tensor) -> torch.Tensor:
    """Return a uint8 batch of either layout as floats in [0, 1], (B, 3, H, W)."""
    images = images.permute(0, 3, 1, 2) if is_channels_last(images) else images
    return images.float() / 255


@dataclass(frozen=True)
class _Begun:
    """A step that waits for the validation gradient."""

    policies: np.ndarray  # (L̂, N_o)
    inputs: torch.Tensor  # (L̂ + 1, B, C, H, W)
    targets: list[Any]  # of each version
    changed: torch.Tensor  # (L̂,) bool: whether a policy changed a pixel
    state: dict[str, torch.Tensor]  # the network's θ_t and buffers


class OnlineSearch:
    """Learns the policy during the training that uses it, instead of on a proxy task.

        steps = epochs * len(batches)
        online = ddas_gpu.OnlineSearch(model, F.cross_entropy, validation, steps=steps)
        for epoch in range(epochs):
            for images, labels in batches:  # uint8 (B, 3, H, W) or (B, H, W, 3)
                online.step(images, labels)
                inputs = prepare(online.augment(images))
                ...  # forward, backward, optimizer.step()
            online.end_epoch()
        online.policy.save("policy.json")

    In a search, `step` makes the first `batch_size` images under `policies` (L̂) policies. The
    next call, after the optimizer's step, computes the gradient of `val_batch_size` validation
    images at the new weights; how far the gradient of each version points along it moves the
    probabilities, as in the search. Weights, buffers, gradients and torch's generators are left as
    they are.

    model: the network that is trained, in training mode.
    loss: loss(outputs, targets), one number per batch; or a `SearchTask` for targets that move with
        the pixels.
    validation: data as `search_policy` takes it; it is read into memory.
    space: a preset, for images of any size, or a SearchSpace.
    steps: how many steps your training has. Without `warmup`, `every` and `searches` it searches
        early: a thirtieth of the steps on images as they are, then steps / 64 searches, at most
        600, one in every 4 steps; the policy then stays. That costs less than 10 % of the time even
        of small networks. The rates of α follow from the searches, too, unless they are given.
    prepare: what turns a uint8 batch, in the layout of your batches, into the network's inputs; by
        default floats in [0, 1].
    warmup: steps at the start without a search, on images as they are.
    every: search in one of so many steps; 64 where another of these arguments is given.
    searches: search no more often than this, in the first steps after the warm-up; the policy then
        stays. Where only `every` or `warmup` is given, the search goes on to the end.
    val_memory: decay of the running mean of the validation gradient.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Any, Any], torch.Tensor] | SearchTask,
        validation: Any,
        space: str | SearchSpace = "cifar",
        *,
        steps: int | None = None,
        policies: int = 15,
        batch_size: int = 16,
        val_batch_size: int = 128,
        prepare: Callable[[torch.Tensor], torch.Tensor] = to_unit_interval,
        apply_probability: float = 0.35,
        warmup: int | None = None,
        every: int | None = None,
        searches: int | None = None,
        lr_ops: float | None = None,
        lr_apply: float | None = None,
        val_memory: float = 0.8,
        columns: tuple[str, str] = COLUMNS,
        workers: int = 1,
        seed: int = 0,
    ) -> None:
        if steps is not None and warmup is every is searches is None:
            warmup, every, searches = early(max(1, steps))
        warmup = 0 if warmup is None else warmup
        every = EVERY if every is None else every
        steps = STEPS if steps is None else steps
        for name, value, least in (
            ("every", every, 1),
            ("policies", policies, 2),
            ("batch_size", batch_size, 1),
            ("val_batch_size", val_batch_size, 1),
            ("warmup", warmup, 0),
            ("searches", 1 if searches is None else searches, 1),
            ("steps", steps, 1),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        if distributed.is_initialized() and distributed.get_world_size() > 1:
            raise ValueError("OnlineSearch runs in one process: its ranks would learn apart")
        if warmup >= steps:
            raise ValueError(
                f"a warmup of {warmup} steps leaves none of {steps} to search in: give steps=…, "
                "those of your training"
            )
        self.model: nn.Module = bare(model)
        require_weights(self.model)
        self.prepare, self.seed = prepare, seed
        self.task = loss if isinstance(loss, SearchTask) else LossOnly(loss)
        self.every, self.policies, self.batch_size = every, policies, batch_size
        self.warmup, self.val_memory = warmup, val_memory
        examples = open_examples(validation, columns, seed)
        size = one_size(examples)
        if size is None:
            raise ValueError("validation images must have one size, that of the training batches")
        self._validation = examples.in_memory(workers, size)
        self._val_batch_size = min(val_batch_size, len(self._validation))
        self.space = sized_space(space, min(size)) if isinstance(space, str) else space
        if not isinstance(loss, SearchTask):
            check_space(self.space, has_boxes=False, where="space")
        there_are = max(1, (steps - warmup) // every)
        self.planned = there_are if searches is None else min(searches, there_are)
        self.stops = searches is not None
        self.parameters = AugmentationParameters(
            len(self.space),
            apply_probability,
            lr_ops=apply_rate(lr_ops, self.planned),
            lr_apply=apply_rate(lr_apply, self.planned),
            betas=(0.9, 0.999),
            relative=True,
        )
        self.steps = self.searches = self.augmented = 0  # calls and steps of the search so far
        self.history: list[tuple[float, np.ndarray]] = []  # (p_tp, p_o) after each epoch
        self._direction: dict[str, torch.Tensor] = {}  # the running mean of g_val
        self._begun: _Begun | None = None
        self._present: PolicySchedule | None = None  # of the present α, once it is needed
        self._channels_first = True

    def step(self, images: torch.Tensor, targets: Any) -> None:
        """Learn from a batch. Call it once per step of your optimizer, before the forward pass."""
        self._finish()
        searching = not self.stops or self.searches < self.planned
        after = self.steps - self.warmup
        if searching and after >= 0 and after % self.every == 0:
            self._begin(images, targets)
        self.steps += 1

    @torch.no_grad()
    def augment(self, images: torch.Tensor, targets: Any = None) -> Any:
        """Return a uint8 batch under the present policy, every image with its own draws.

        With targets, return both: a `SearchTask` moves its targets with the pixels. In the warm-up
        they stay as they are.
        """
        pixels = self._as_pixels(images)
        if (self.steps <= self.warmup and self.warmup) or not len(pixels):
            return images if targets is None else (images, targets)
        samples = np.arange(len(pixels))
        if self._present is None:
            self._present = self._schedule([self._now()])
        chosen = self._present.draw(self.augmented, 1, self.seed, samples)
        key = sign_key(self.seed, self.augmented)
        self.augmented += 1
        if targets is None:
            return self._as_given(ops.augment(pixels, chosen, self.space, key, samples=samples))
        trial = PerImage(chosen, self.space, key, samples)
        versions, moved = checked_versions(self.task, pixels, targets, trial)
        return self._as_given(versions[1]), moved[1]

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
        names = ("every", "policies", "batch_size", "warmup", "searches", "seed")
        settings = {
            "data": self._validation.name,
            "model": f"{type(self.model).__module__}.{type(self.model).__qualname__}",
            "online": {name: getattr(self, name) for name in names} | {"steps": self.steps},
        }
        return PolicySchedule(self.space, np.array(p_tp), np.stack(p_o), settings)

    # Algorithm 1, with the user's step from θ_t to θ_{t+1} between its halves.

    def _begin(self, images: torch.Tensor, targets: Any) -> None:
        """Draw the policies, and keep what g_0 … g_L̂ at θ_t need."""
        pixels = self._as_pixels(images)[: self.batch_size]
        count = len(pixels)
        if not count:
            return
        targets = tree_map(lambda t: t[:count] if torch.is_tensor(t) else t, targets)
        sizes = self.policies, self.space.depth, len(self.space)
        policies = deal_policies(self.seed, self.searches, *sizes)
        # Not the key of the training's own draws.
        key = streams.number(self.seed, Stream.EXAMPLES, self.searches)
        trial = Trial(policies, self.space, key, np.arange(count))
        versions, targets = checked_versions(self.task, pixels, targets, trial)
        with RandomState(pixels.device).replayed(), torch.no_grad():
            inputs = [self.prepare(self._as_given(version)) for version in versions]
        changed = ~unchanged(versions).cpu()
        self._begun = _Begun(policies, torch.stack(inputs), targets, changed, self._copied_state())

    def _copied_state(self) -> dict[str, torch.Tensor]:
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        return {name: value.detach().clone() for name, value in named}

    def _finish(self) -> None:
        """Compute g_val at θ_{t+1}, its products with g_0 … g_L̂ at θ_t, and move α."""
        if self._begun is None:
            return
        begun, self._begun = self._begun, None
        with RandomState(begun.inputs.device).replayed():
            direction = self._remember(self._validation_gradient(begun.inputs.device))
            dots = version_products(
                self.model, self.task.loss, begun.inputs, begun.targets, begun.state, direction
            )
        reward = rewards(dots.cpu())
        if not reward.isfinite().all():
            raise Diverged(f"a gradient is no longer finite in step {self.steps} of the training")
        # Exactly 0 where no pixel changed, without rounding; see `Search.step`.
        self.parameters.update(begun.policies, reward * begun.changed)
        self.searches, self._present = self.searches + 1, None

    def _validation_gradient(self, device: torch.device) -> dict[str, torch.Tensor]:
        """Return g_val at the present θ, batch norm in training mode, on copies of the buffers."""
        weights = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        inputs, targets = self._validation_batch(device)
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        with torch.enable_grad():
            outputs = torch.func.functional_call(self.model, buffers, (inputs,))
            loss = self.task.loss(outputs, targets)
            parts = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
        return {
            name: torch.zeros_like(weight) if part is None else part
            for (name, weight), part in zip(weights.items(), parts, strict=True)
        }

    def _remember(self, gradient: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the direction that rewards are measured along: a running mean of g_val."""
        count = self.searches + 1
        self._direction = running_mean(self._direction, gradient, count, self.val_memory)
        return self._direction

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
            "identity": self._identity(),
            "steps": self.steps,
            "searches": self.searches,
            "augmented": self.augmented,
            "channels_first": self._channels_first,
            "direction": self._direction,
            "parameters": self.parameters.state_dict(),
            "history": [(p_tp, torch.from_numpy(p_o)) for p_tp, p_o in self.history],
        }

    def _identity(self) -> dict[str, str]:
        """Return what a state can only be loaded into if it is the same, in words."""
        shapes = {name: tuple(value.shape) for name, value in self.model.named_parameters()}
        network = type(self.model).__qualname__
        return {
            "model": f"{network} ({zlib.crc32(repr(shapes).encode()):08x})",
            "search space": self.space.identity(),
            "seed": str(self.seed),
            "loss": loss_name(self.task),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        if "identity" not in state:
            raise ValueError("the state was saved by an earlier version: begin the search anew")
        for name, own in self._identity().items():
            if state["identity"][name] != own:
                raise ValueError(
                    f"the state is of another {name}: {state['identity'][name]}, not {own}"
                )
        self._begun = self._present = None
        for name in ("steps", "searches", "augmented"):
            setattr(self, name, state[name])
        self._channels_first = state["channels_first"]
        device = next(self.model.parameters()).device
        direction = state["direction"].items()
        self._direction = {name: part.to(device) for name, part in direction}
        self.parameters.load_state_dict(state["parameters"])
        self.history = [(p_tp, p_o.numpy()) for p_tp, p_o in state["history"]]
