"""Algorithm 1 of the paper: the network learns on augmented batches, α learns what helps it.

Indices: l = 1 … L̂ counts the policies of a step, 0 is the clean batch.
"""

from __future__ import annotations

import json
import math
import time
import zlib
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from ddas_gpu import streams
from ddas_gpu.cli.settings import FREE_TO_CHANGE
from ddas_gpu.distributed.buckets import MeanGradient
from ddas_gpu.distributed.ranks import ALONE, Ranks
from ddas_gpu.errors import Diverged
from ddas_gpu.gradients import PolicyGradients
from ddas_gpu.models.synced_batch_norm import sync_batch_norm
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.steps import StepBatches, order_for
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.runs.learning_rates import learning_rate
from ddas_gpu.search.alpha import AugmentationParameters, draw_policies
from ddas_gpu.search.settings import SearchSettings
from ddas_gpu.space import SearchSpace
from ddas_gpu.streams import Stream
from ddas_gpu.tasks.task import Task, Versions, open_task


def rewards(dots: torch.Tensor) -> torch.Tensor:
    """r_l = g_val · (g_0 - g_l), (L̂,), from g_val · g_l, (L̂ + 1,).

    Negative where the policy's step lowers the validation loss more than the clean step does.
    """
    return dots[0] - dots[1:]


class Search:
    """The state of a search, and the step that moves it; knows nothing of files.

    Every rank computes its share of a step's batches. What is not linear in the images is then
    made of the means over all ranks, so that all of them take the step that one rank with the
    whole batches would. (Only batch norm that is neither frozen nor synced sees its own share.)
    """

    def __init__(
        self,
        settings: SearchSettings,
        space: SearchSpace,
        task: Task,
        device: torch.device | str = "cpu",
        ranks: Ranks = ALONE,
    ) -> None:
        self.settings, self.space, self.task = settings, space, task
        self.device, self.ranks = torch.device(device), ranks
        self.seed = settings.run.seed
        self.train, self.validation = task.search_sets()
        training = settings.training
        self.batches = self._steps(
            task.clean_feed(self.train, training=True),
            "--batch-size",
            training.batch_size,
            self.seed,
        )
        self.validation_batches = self._steps(
            task.clean_feed(self.validation, training=False),
            "--val-batch-size",
            training.val_batch_size,
            streams.number(self.seed, Stream.VALIDATION_ORDER),
        )
        self.steps_per_epoch = self.batches.per_epoch
        self.total_steps = training.epochs * self.steps_per_epoch
        torch.manual_seed(streams.number(self.seed, Stream.WEIGHTS))
        # Channels last in memory: a third faster on a CPU, and what a GPU's tensor cores want.
        model = task.build_model(self.train.class_names)
        self.model = model.train().to(memory_format=torch.channels_last)
        if settings.run.sync_norm and ranks.count > 1:
            sync_batch_norm(self.model)
        self.names = [name for name, p in self.model.named_parameters() if p.requires_grad]
        self.weights = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(
            self.weights,
            settings.training.lr,
            momentum=settings.training.momentum,
            weight_decay=settings.training.weight_decay,
        )
        self.parameters = AugmentationParameters(
            len(space),
            settings.policy.apply_probability,
            lr_ops=settings.policy.lr_ops,
            lr_apply=settings.policy.lr_apply,
            betas=settings.policy.adam_betas,
        )
        self.steps = 0  # done so far
        self.history: list[tuple[float, np.ndarray]] = []  # (p_tp, p_o) after each epoch
        self.trials: list[tuple[np.ndarray, np.ndarray]] = []  # φ (L̂, N_o) and r (L̂,) of each step

    def _steps(self, feed: Feed, flag: str, batch_size: int, seed: int) -> StepBatches:
        """Return this rank's batches, of a random order for each pass over the images."""
        ranks, settings = self.ranks, self.settings
        size = ranks.batch_size(flag, batch_size, settings.run.ranks)
        order = order_for(len(feed.source), size, seed, ranks.rank, ranks.count, flag)
        workers = settings.data.workers or settings.run.threads
        return StepBatches(feed, order, self.device.type, workers)

    @property
    def images_per_step(self) -> int:
        """On all ranks: each version of the training batch, and the validation batch."""
        sizes = self.batches.order.batch_size, self.validation_batches.order.batch_size
        versions = self.settings.policy.policies + 1
        return (versions * sizes[0] + sizes[1]) * self.ranks.count

    @property
    def finished(self) -> bool:
        return self.steps == self.total_steps

    def step(self) -> dict[str, Any]:
        """One step of Algorithm 1; what there is to tell about it, as in metrics.jsonl."""
        step, watch = self.steps, Stopwatch(self.device)
        learning_rate = self.learning_rate(step)
        self.ranks.seed_network(self.seed, step)
        policies = self.draw_policies(step)
        versions = self.versions(step, policies, watch)
        gradients = PolicyGradients(
            self.model,
            self.task.loss,
            versions.inputs,
            versions.targets,
            method=self.settings.training.gradients,
        )
        losses, unchanged = self.over_all_ranks(gradients.losses, versions.unchanged)
        self.require_finite("training loss", *losses)
        shares = self.parameters.weights(policies)
        gradient = self.mean_gradient()
        for name, part in gradients.weighted_parts(shares):
            gradient.add(name, part)
        watch.lap("gradients", wait=False)
        # Read while the gradient is on its way.
        validation_batch = self.task.validation_inputs(self.validation_batches.batch(step))
        watch.lap("validation", wait=False)
        self.descend(gradient.result(), learning_rate)
        watch.lap("gradients")
        validation_loss, direction = self.validation_gradient(*validation_batch)
        self.require_finite("validation loss", validation_loss)
        watch.lap("validation")
        # The mean of g_val · g_l is g_val · (the mean of g_l): only the products need to travel.
        dots = self.ranks.mean(gradients.dot(direction))
        watch.lap("dot")
        reward = rewards(dots.to("cpu", torch.float64))
        self.require_finite("gradient of the validation loss", *reward.tolist())
        # A policy that left every pixel alone (Identity, Color on grey images) has r = 0. Rounding
        # may say otherwise, and Z_g would blow that up to the size of a real signal.
        reward[unchanged] = 0.0
        self.parameters.update(policies, reward)
        self.trials.append((policies, reward.numpy()))
        watch.lap("update")
        self.steps += 1
        p_tp, p_o = self.parameters.apply_probability, self.parameters.op_probabilities
        if self.steps % self.steps_per_epoch == 0:
            self.history.append((p_tp, p_o))
        return {
            "epoch": step // self.steps_per_epoch,
            "step": step,
            "loss": float(np.dot(shares.numpy(), losses)),
            "clean_loss": losses[0],
            "validation_loss": validation_loss,
            "apply_probability": p_tp,
            "policies": policies.tolist(),
            "rewards": reward.tolist(),
            "learning_rate": learning_rate,
            "seconds": watch.seconds,
            "images": self.images_per_step,
        }

    def versions(self, step: int, policies: np.ndarray, watch: Stopwatch) -> Versions:
        """Return the clean batch of a step and its version under each policy."""
        clean = self.batches.batch(step)
        watch.lap("data")
        versions = self.task.versions(clean, policies, self.space)
        watch.lap("augment")
        return versions

    def over_all_ranks(
        self, losses: torch.Tensor, unchanged: torch.Tensor
    ) -> tuple[list[float], torch.Tensor]:
        """The mean losses (L̂ + 1,), and which policies have changed no image of any rank (L̂,)."""
        changed = (~unchanged).to(losses)
        means = self.ranks.mean(torch.cat([losses, changed]))
        return means[: len(losses)].tolist(), means[len(losses) :].cpu() == 0

    def mean_gradient(self, last_layer_first: bool = False) -> MeanGradient:
        """For a gradient of the weights, whose parts come in this order."""
        pairs = list(zip(self.names, self.weights, strict=True))
        return MeanGradient(self.ranks, dict(pairs[::-1] if last_layer_first else pairs))

    def draw_policies(self, step: int) -> np.ndarray:
        """φ_1 … φ_L̂ of a step, (L̂, N_o)."""
        generator = streams.generator(self.seed, Stream.POLICIES, step)
        count = self.settings.policy.policies
        return draw_policies(generator, count, self.space.depth, len(self.space))

    def learning_rate(self, step: int) -> float:
        """SGD's learning rate η for a step."""
        steps = self.total_steps, self.steps_per_epoch
        return learning_rate(self.settings.training, step, *steps)

    def descend(self, gradient: dict[str, torch.Tensor], learning_rate: float) -> None:
        """θ_t → θ_{t+1}, one step of SGD with momentum along `gradient`."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        for name, weight in zip(self.names, self.weights, strict=True):
            weight.grad = gradient[name]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def validation_gradient(
        self, inputs: torch.Tensor, targets: Any
    ) -> tuple[float, dict[str, torch.Tensor]]:
        """L_val and its gradient at the present θ, batch norm in training mode.

        The pass runs on copies of the buffers, because the running statistics are the clean
        batches'. Each layer's gradient sets off for the other ranks while the layers before it
        are computed.
        """
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        outputs = torch.func.functional_call(self.model, buffers, (inputs,))
        loss = self.task.loss(outputs, targets)
        gradient = self.mean_gradient(last_layer_first=True)
        hooks = [
            weight.register_hook(partial(gradient.add, name))
            for name, weight in zip(self.names, self.weights, strict=True)
        ]
        parts = torch.autograd.grad(loss, self.weights, allow_unused=True)
        for hook in hooks:
            hook.remove()
        for name, weight, part in zip(self.names, self.weights, parts, strict=True):
            if part is None:  # a weight that the loss does not depend on
                gradient.add(name, torch.zeros_like(weight))
        return self.ranks.mean(loss.detach()).item(), gradient.result()

    def require_finite(self, what: str, *values: float) -> None:
        if not all(math.isfinite(value) for value in values):
            raise Diverged(
                f"the {what} is no longer a finite number in step {self.steps} of "
                f"{self.total_steps}: try a smaller --lr than {self.settings.training.lr:g}"
            )

    def fingerprints(self) -> list[int]:
        """Numbers that tell these training and validation images from others."""
        return list(self._fingerprints)

    @cached_property
    def _fingerprints(self) -> tuple[int, int]:
        return self.train.fingerprint(), self.validation.fingerprint()

    @property
    def parameter_count(self) -> int:
        """Numbers that the network learns."""
        return sum(weight.numel() for weight in self.weights)

    def provenance(self) -> dict[str, Any]:
        """Return what the policy was found with: settings, network, data; as JSON has it."""
        values = json.loads(json.dumps(self.settings.to_json()))
        return {
            **{name: value for name, value in values.items() if name not in FREE_TO_CHANGE},
            "parameters": self.parameter_count,
            "fingerprints": self.fingerprints(),
            **self.task.provenance(),
        }

    def schedule(self) -> PolicySchedule:
        """What the epochs so far have found, p_tp smoothed."""
        p_tp, p_o = zip(*self.history, strict=True)
        raw = PolicySchedule(self.space, np.array(p_tp), np.stack(p_o), self.provenance())
        return raw.smoothed(self.settings.policy.smoothing)

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on; the randomness is in the number of steps."""
        trials = [np.stack(parts) for parts in zip(*self.trials, strict=True)]
        return {
            "steps": self.steps,
            "identity": self.identity(),
            "trials": [torch.from_numpy(part) for part in trials],
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "parameters": self.parameters.state_dict(),
            "history": [(p_tp, torch.from_numpy(p_o)) for p_tp, p_o in self.history],
        }

    def identity(self) -> dict[str, str]:
        """Return what a state can only be loaded into if it is the same, in words."""
        shapes = {name: tuple(value.shape) for name, value in self.model.state_dict().items()}
        network = f"{type(self.model).__qualname__} of {self.parameter_count:,} parameters"
        candidates = json.dumps(self.space.to_json())
        return {
            "model": f"{network} ({zlib.crc32(repr(shapes).encode()):08x})",
            "search space": f"{len(self.space)} candidates ({zlib.crc32(candidates.encode()):08x})",
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, own in self.identity().items():
            if state["identity"][name] != own:
                raise ValueError(
                    f"the run was started with another {name}: {state['identity'][name]}, not {own}"
                )
        self.steps = state["steps"]
        self.trials = list(zip(*(part.numpy() for part in state["trials"]), strict=True))
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.parameters.load_state_dict(state["parameters"])
        self.history = [(p_tp, p_o.numpy()) for p_tp, p_o in state["history"]]


class Stopwatch:
    """Seconds by stage. On a GPU it waits for the work to be done, or it would time nothing."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = {}
        self._device = device
        self._last = time.perf_counter()

    def lap(self, stage: str, wait: bool = True) -> None:
        """Time since the last lap; without waiting, what is still under way goes to a later one."""
        if wait and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


def open_search(
    settings: SearchSettings,
    space: SearchSpace | None = None,
    device: torch.device | str = "cpu",
    ranks: Ranks = ALONE,
) -> Search:
    """Return a search on the data set of its settings; without a space on theirs."""
    task = open_task(settings, device, ranks)
    return Search(settings, space or settings.search_space(), task, device, ranks)
