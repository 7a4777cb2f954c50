"""`OnlineSearch`: the step of the search inside a user's own training loop."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import distributed, nn

from ddas_gpu import ops, streams
from ddas_gpu.data.datasets import COLUMNS, one_size, open_examples
from ddas_gpu.errors import Diverged
from ddas_gpu.gradients import version_products
from ddas_gpu.gradients.versions import RandomState
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.search.alpha import AugmentationParameters, apply_rate, deal_policies, rewards
from ddas_gpu.search.held_out import HeldOut
from ddas_gpu.search.presets import sized_space
from ddas_gpu.search.timetable import Timetable
from ddas_gpu.search.user_batches import as_pixels, first_targets, to_unit_interval
from ddas_gpu.space import SearchSpace, check_space
from ddas_gpu.streams import Stream, sign_key
from ddas_gpu.tasks.custom import (
    LossOnly,
    PerImage,
    SearchTask,
    Trial,
    checked_versions,
    loss_name,
)
from ddas_gpu.tasks.own_network import bare, class_name, require_weights
from ddas_gpu.tasks.task import unchanged


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
    validation: data as `search_policy` takes it, of the size of the training batches; it is read
        into memory.
    space: a preset, for images of any size, or a SearchSpace.
    steps: how many steps your training has. Without `warmup`, `every` and `searches` it searches
        early: a thirtieth of the steps on images as they are, then steps / 64 searches, at most
        1,000, one in every step; the policy then stays. That costs less than 10 % of the time even
        of small networks. The rates of α follow from the searches, too, unless they are given.
    prepare: what turns a uint8 batch, in the layout of your batches, into the network's inputs; by
        default floats in [0, 1].
    warmup: steps at the start without a search, on images as they are.
    every: search in one of so many steps; 64 where another of these arguments is given.
    searches: search no more often than this, in the first steps after the warm-up; the policy then
        stays. Where only `every` or `warmup` is given, the search goes on to the end.
    val_memory: decay of the running mean of the validation gradient.
    val_statistics: batch norm in the validation pass, "batch" or "both", as --val-statistics.
        "both" sees what a camera does to all of its images, and takes another validation pass.
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
        val_statistics: str = "batch",
        columns: tuple[str, str] = COLUMNS,
        workers: int = 1,
        seed: int = 0,
    ) -> None:
        for name, value, least in (
            ("policies", policies, 2),
            ("batch_size", batch_size, 1),
            ("val_batch_size", val_batch_size, 1),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        if distributed.is_initialized() and distributed.get_world_size() > 1:
            raise ValueError("OnlineSearch runs in one process: its ranks would learn apart")
        self.times = Timetable.of(steps, warmup, every, searches)
        self.model, self.task = _network(model), _task(loss)
        self.prepare, self.seed = prepare, seed
        self.policies, self.batch_size = policies, batch_size
        examples = open_examples(validation, columns, seed)
        size = one_size(examples)
        if size is None:
            raise ValueError("validation images must have one size, that of the training batches")
        self._size = size
        if self.task.spatial:  # scaling an image would miss its target: refuse one that needs it
            examples = replace(examples, size=size)
        read = examples.in_memory(workers, size)
        self._held_out = HeldOut(read, val_batch_size, seed, val_statistics, val_memory)
        self.space = sized_space(space, min(size)) if isinstance(space, str) else space
        if not isinstance(loss, SearchTask):
            check_space(self.space, has_boxes=False, where="space")
        self.parameters = AugmentationParameters(
            len(self.space),
            apply_probability,
            lr_ops=apply_rate(lr_ops, self.times.planned),
            lr_apply=apply_rate(lr_apply, self.times.planned),
            betas=(0.9, 0.999),
            relative=True,
        )
        self._weights = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        self._fingerprint = read.fingerprint()
        self._identity = self._identify()
        self.steps = self.searches = self.augmented = 0  # calls and steps of the search so far
        self.history: list[tuple[float, np.ndarray]] = []  # (p_tp, p_o) after each epoch
        self._begun: _Begun | None = None
        self._present: PolicySchedule | None = None  # of the present α, once it is needed
        self._channels_first = True

    def step(self, images: torch.Tensor, targets: Any) -> None:
        """Learn from a batch. Call it once per step of your optimizer, before the forward pass."""
        self._finish()
        pixels = self._as_pixels(images)
        if len(pixels) and self.times.due(self.steps, self.searches):
            self._begin(pixels, targets)
        self.steps += 1

    @torch.no_grad()
    def augment(self, images: torch.Tensor, targets: Any = None) -> Any:
        """Return a uint8 batch under the present policy, every image with its own draws.

        With targets, return both: a `SearchTask` moves its targets with the pixels. In the warm-up
        they stay as they are.
        """
        pixels = self._as_pixels(images)
        if targets is None and self.task.spatial:
            raise ValueError(
                f"targets of {type(self.task).__name__} move with the pixels: call "
                "images, targets = online.augment(images, targets)"
            )
        in_warmup = self.times.warmup and self.steps <= self.times.warmup
        if in_warmup or not len(pixels):
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
        settings = self._settings()
        settings["online"]["steps"] = self.steps
        return PolicySchedule(self.space, np.array(p_tp), np.stack(p_o), settings)

    def _settings(self) -> dict[str, Any]:
        """Return what the policy was found with, as JSON has it."""
        held_out, times = self._held_out, self.times
        return {
            "data": held_out.examples.name,
            "fingerprints": [self._fingerprint],
            "model": class_name(self.model),
            "parameters": self._weights,
            "loss": loss_name(self.task),
            "image_size": min(self._size),
            "online": {
                "warmup": times.warmup,
                "every": times.every,
                "searches": times.searches,
                "policies": self.policies,
                "batch_size": self.batch_size,
                "val_batch_size": held_out.batch_size,
                "val_memory": held_out.memory,
                "val_statistics": held_out.statistics,
                "seed": self.seed,
            },
        }

    # Algorithm 1, with the user's step from θ_t to θ_{t+1} between its halves.

    def _begin(self, pixels: torch.Tensor, targets: Any) -> None:
        """Draw the policies, and keep what g_0 … g_L̂ at θ_t need."""
        targets = first_targets(targets, self.batch_size, len(pixels))
        pixels = pixels[: self.batch_size]
        sizes = self.policies, self.space.depth, len(self.space)
        policies = deal_policies(self.seed, self.searches, *sizes)
        # Not the key of the training's own draws.
        key = streams.number(self.seed, Stream.EXAMPLES, self.searches)
        trial = Trial(policies, self.space, key, np.arange(len(pixels)))
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
        device = begun.inputs.device
        with RandomState(device).replayed():
            pixels, targets = self._held_out.batch(self.searches, device)
            inputs = self.prepare(self._as_given(pixels))
            direction = self._held_out.remember(self.model, self.task.loss, inputs, targets)
            dots = version_products(
                self.model, self.task.loss, begun.inputs, begun.targets, begun.state, direction
            )
        reward = rewards(dots.cpu())
        if not reward.isfinite().all():
            raise Diverged(f"a gradient is no longer finite in step {self.steps} of the training")
        # Exactly 0 where no pixel changed, without rounding; see `Search.step`.
        self.parameters.update(begun.policies, reward * begun.changed)
        self.searches, self._present = self.searches + 1, None

    def _as_pixels(self, images: torch.Tensor) -> torch.Tensor:
        """Return a user's batch as (B, H, W, 3), and remember its layout."""
        pixels, self._channels_first = as_pixels(images, self._size)
        return pixels

    def _as_given(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return (B, H, W, 3) in the layout of the user's batches."""
        return pixels.permute(0, 3, 1, 2).contiguous() if self._channels_first else pixels

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of what the next step depends on. Save it after the optimizer's step."""
        self._finish()
        state = {
            "identity": self._identity,
            "steps": self.steps,
            "searches": self.searches,
            "augmented": self.augmented,
            "channels_first": self._channels_first,
            "held_out": self._held_out.state_dict(),
            "parameters": self.parameters.state_dict(),
            "history": [(p_tp, torch.from_numpy(p_o)) for p_tp, p_o in self.history],
        }
        return copy.deepcopy(state)

    def _identify(self) -> dict[str, str]:
        """Return what a state can only be loaded into if it is the same, in words."""
        shapes = {name: tuple(value.shape) for name, value in self.model.named_parameters()}
        network = type(self.model).__qualname__
        settings = self._settings()
        return {
            "model": f"{network} ({zlib.crc32(repr(shapes).encode()):08x})",
            "search space": self.space.identity(),
            "loss": settings["loss"],
            "validation set": f"{settings['data']} ({settings['fingerprints'][0]:08x})",
            **{name: str(value) for name, value in settings["online"].items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        if "held_out" not in state:
            raise ValueError(
                "that is no state of an OnlineSearch of this version: give what state_dict() "
                "returned, or begin the search anew"
            )
        for name, own in self._identity.items():
            if state["identity"][name] != own:
                raise ValueError(
                    f"the state is of another {name}: {state['identity'][name]}, not {own}"
                )
        state = copy.deepcopy(state)
        self._begun = self._present = None
        for name in ("steps", "searches", "augmented"):
            setattr(self, name, state[name])
        self._channels_first = state["channels_first"]
        self._held_out.load_state_dict(state["held_out"], next(self.model.parameters()).device)
        self.parameters.load_state_dict(state["parameters"])
        self.history = [(p_tp, p_o.numpy()) for p_tp, p_o in state["history"]]


def _network(model: Any) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is the nn.Module that you train, not {_kind(model)}")
    network = bare(model)
    require_weights(network)
    return network


def _task(loss: Any) -> SearchTask:
    if isinstance(loss, SearchTask):
        return loss
    if isinstance(loss, type) or not callable(loss):
        raise TypeError(f"loss is loss(outputs, targets) or a SearchTask, not {_kind(loss)}")
    return LossOnly(loss)


def _kind(given: Any) -> str:
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
