"""Algorithm 1 of the paper: the network learns on augmented batches, α learns what helps it.

Indices: l = 1 … L̂ counts the policies of a step, 0 is the clean batch.
"""

from __future__ import annotations

import json
import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from ddas_gpu import streams
from ddas_gpu.cli.rules import bytes_of
from ddas_gpu.cli.settings import FREE_TO_CHANGE
from ddas_gpu.distributed.ranks import ALONE, Ranks
from ddas_gpu.errors import Diverged
from ddas_gpu.gradients import Plan, PolicyGradients, free_bytes
from ddas_gpu.pipelines.batches import StepBatches
from ddas_gpu.pipelines.feed import Feed
from ddas_gpu.pipelines.order import order_for
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.runs.network import learning_rate, open_network
from ddas_gpu.runs.stopwatch import Stopwatch, stopwatch
from ddas_gpu.search.alpha import (
    AugmentationParameters,
    TrialLog,
    apply_rate,
    deal_policies,
    draw_policies,
    pull,
    rewards,
)
from ddas_gpu.search.learner import Learner
from ddas_gpu.search.settings import SearchSettings
from ddas_gpu.space import SearchSpace
from ddas_gpu.streams import Stream
from ddas_gpu.tasks.task import Task, Versions, open_task


class Read(NamedTuple):
    """The numbers of a step that the host needs."""

    losses: list[float]  # (L̂ + 1,)
    validation_loss: float
    measured: dict[str, float]  # of the validation batch, such as validation_accuracy
    rewards: torch.Tensor  # (L̂,) float64


class Search:
    """The state of a search, and its step; knows nothing of files.

    Every rank computes its share of a step's batches. What is not linear in the images is then
    computed from means over all ranks, so that all of them take the step that one rank with the
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
        self.settings = settings = task.settings  # with presets that fit the data
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
        self.search_steps = training.epochs * self.steps_per_epoch
        self.warmup_steps = settings.policy.warmup_epochs * self.steps_per_epoch
        self.total_steps = self.warmup_steps + self.search_steps
        self.model = open_network(task, self.train.class_names, settings.run, ranks)
        of_validation = settings.policy.val_memory, settings.policy.val_statistics
        self.learner = Learner(self.model, task, training, *of_validation, self.device, ranks)
        self.parameters = AugmentationParameters(
            len(space),
            settings.policy.apply_probability,
            lr_ops=settings.policy.lr_ops,
            lr_apply=apply_rate(settings.policy.lr_apply, self.search_steps),
            betas=settings.policy.adam_betas,
            relative=settings.policy.compare_with == "policies",
        )
        # Found once and kept in checkpoints, so that a resumed run computes in the same way.
        self.memory = bytes_of(training.memory) if training.memory else free_bytes(self.device)
        self.plan: Plan | None = None  # of the gradients, since the first step
        self.steps = 0  # done so far
        self.history: list[tuple[float, np.ndarray]] = []  # (p_tp, p_o) after each epoch
        self.trials = TrialLog(settings.policy.policies, space.depth)  # for the verdict

    def _steps(self, feed: Feed, flag: str, batch_size: int, seed: int) -> StepBatches:
        """Return this rank's batches, of a random order for each pass over the images."""
        ranks, settings = self.ranks, self.settings
        size = ranks.batch_size(flag, batch_size, settings.run.ranks)
        order = order_for(len(feed.source), size, seed, ranks.rank, ranks.count, flag)
        workers = settings.data.workers
        workers = settings.run.threads if workers is None else workers
        return StepBatches(feed, order, self.device.type, workers)

    @property
    def images_per_step(self) -> int:
        """On all ranks: each version of the training batch, and the validation batch."""
        sizes = self.batches.order.batch_size, self.validation_batches.order.batch_size
        versions = self.settings.policy.policies + 1
        return (versions * sizes[0] + sizes[1]) * self.ranks.count

    def images_until(self, step: int) -> int:
        """Return how many images the first steps process on all ranks; the warm-up's have fewer."""
        warm = min(step, self.warmup_steps)
        clean = self.batches.order.batch_size * self.ranks.count
        return warm * clean + (step - warm) * self.images_per_step

    @property
    def finished(self) -> bool:
        return self.steps == self.total_steps

    def step(self) -> dict[str, Any] | None:
        """Run one step of Algorithm 1; return its line of metrics.jsonl.

        A step of the warm-up has none. The device is waited for once, when α needs the rewards:
        losses and products are read together.
        """
        if self.steps < self.warmup_steps:
            self.warm_up()
            return None
        step, watch = self.searched, stopwatch(self.device)
        learning_rate = self.learning_rate(step)
        self.ranks.seed_network(self.seed, self.steps)
        policies = self.draw_policies(step)
        versions = self.versions(self.steps, policies, watch)
        shares = self.parameters.weights(policies)
        gradients = self.policy_gradients(versions, shares)
        self.plan = gradients.plan
        gradient = self.learner.mean_gradient()
        for name, part in gradients.weighted_parts():
            gradient.add(name, part)
        watch.lap("gradients")
        # Read while the gradient is all-reduced.
        validation_batch = self.task.validation_inputs(self.validation_batches.batch(step))
        watch.lap("validation")
        self.learner.descend(gradient.result(), learning_rate)
        watch.lap("gradients")
        validation, direction = self.learner.validation_gradient(*validation_batch)
        watch.lap("validation")
        dots = gradients.dot(self.learner.remember(direction))
        watch.lap("dot")
        read = self.read(gradients.losses, validation, dots, versions.unchanged)
        self.parameters.update(policies, read.rewards)
        self.trials.append(policies, read.rewards.numpy(), pull(shares, read.rewards))
        watch.lap("update")
        self.steps += 1
        p_tp, p_o = self.parameters.apply_probability, self.parameters.op_probabilities
        if self.steps % self.steps_per_epoch == 0:
            self.history.append((p_tp, p_o))
        first = {"gradients": str(self.plan)} if step == 0 else {}
        return first | {
            "epoch": step // self.steps_per_epoch,
            "step": step,
            "loss": float(np.dot(shares.numpy(), read.losses)),
            "clean_loss": read.losses[0],
            "validation_loss": read.validation_loss,
            **read.measured,
            "apply_probability": p_tp,
            "policies": policies.tolist(),
            "rewards": read.rewards.tolist(),
            "learning_rate": learning_rate,
            "seconds": watch.seconds(),
            "images": self.images_per_step,
        }

    @property
    def searched(self) -> int:
        """Steps of Algorithm 1 so far; 0 in the warm-up."""
        return max(0, self.steps - self.warmup_steps)

    def warm_up(self) -> None:
        """Train for one step on the clean batch; α stays as it is."""
        self.ranks.seed_network(self.seed, self.steps)
        any_policy = np.zeros((1, self.space.depth), np.intp)
        versions = self.versions(self.steps, any_policy, stopwatch(self.device))
        gradients = self.policy_gradients(versions.clean, torch.ones(1))
        gradient = self.learner.mean_gradient()
        for name, part in gradients.weighted_parts():
            gradient.add(name, part)
        self.learner.descend(gradient.result(), self.settings.training.lr)
        self.require_finite("training loss", self.ranks.mean(gradients.losses).item())
        self.steps += 1

    def policy_gradients(self, versions: Versions, shares: torch.Tensor) -> PolicyGradients:
        """Return the gradients g_l at the present θ, to be weighted by w_l, (L̂ + 1,)."""
        with self.learner.autocast():
            return PolicyGradients(
                self.model,
                self.task.loss,
                versions.inputs,
                versions.targets,
                weights=shares,
                method=self.settings.training.gradients,
                memory=self.memory,
            )

    def versions(self, step: int, policies: np.ndarray, watch: Stopwatch) -> Versions:
        """Return the clean batch of a step and its version under each policy."""
        clean = self.batches.batch(step)
        watch.lap("data")
        versions = self.task.versions(clean, policies, self.space)
        watch.lap("augment")
        return versions

    def read(
        self,
        losses: torch.Tensor,
        validation: torch.Tensor,
        dots: torch.Tensor,
        unchanged: torch.Tensor,
    ) -> Read:
        """Return the numbers of a step, means over all ranks, in one transfer.

        validation: the loss, and what else is measured.
        The mean of g_val · g_l is g_val · (the mean of g_l): only the products are reduced.
        """
        count, changed = len(losses), ~unchanged.to(losses.device)
        numbers = torch.cat([losses, validation, dots, changed])
        # One tensor of all numbers, or every one of them would wait for the device.
        parts = [count, len(validation), count, count - 1]
        losses_, validation_, dots_, changed_ = self.ranks.mean(numbers.double()).cpu().split(parts)
        loss, *measured = validation_.tolist()
        self.require_finite("training loss", *losses_.tolist())
        self.require_finite("validation loss", loss)
        reward = rewards(dots_)
        self.require_finite("gradient of the validation loss", *reward.tolist())
        # A policy that left every pixel alone (Identity, Color on grey images) has r = 0. Rounding
        # may make it nonzero, and dividing by Z_g would scale that up to a real signal.
        reward[changed_ == 0] = 0.0
        names = (f"validation_{name}" for name in self.task.measured)
        return Read(losses_.tolist(), loss, dict(zip(names, measured, strict=True)), reward)

    def draw_policies(self, step: int) -> np.ndarray:
        """Draw φ_1 … φ_L̂ of a step, (L̂, N_o)."""
        sizes = self.settings.policy.policies, self.space.depth, len(self.space)
        if self.settings.policy.draws == "deck":
            return deal_policies(self.seed, step, *sizes)
        return draw_policies(streams.generator(self.seed, Stream.POLICIES, step), *sizes)

    def learning_rate(self, step: int) -> float:
        """Return SGD's learning rate η for a step of Algorithm 1; the warm-up has the first."""
        steps = self.search_steps, self.steps_per_epoch
        return learning_rate(self.settings.training, step, *steps)

    def require_finite(self, what: str, *values: float) -> None:
        if all(math.isfinite(value) for value in values):
            return
        advice = f"try a smaller --lr than {self.settings.training.lr:g}"
        if self.learner.mixed and self.learner.half is torch.float16:
            advice += ", or --amp bf16 or off: float16 ends at 65,504"
        raise Diverged(
            f"the {what} is no longer a finite number in step {self.steps} of {self.total_steps}: "
            f"{advice}"
        )

    def fingerprints(self) -> list[int]:
        """Return checksums of the training and the validation images."""
        return list(self._fingerprints)

    @cached_property
    def _fingerprints(self) -> tuple[int, int]:
        return self.train.fingerprint(), self.validation.fingerprint()

    def provenance(self) -> dict[str, Any]:
        """Return what the policy was found with: settings, network, data; as JSON has it."""
        values = json.loads(json.dumps(self.settings.to_json()))
        return {
            **{name: value for name, value in values.items() if name not in FREE_TO_CHANGE},
            "parameters": self.learner.parameter_count,
            "fingerprints": self.fingerprints(),
            **self.task.provenance(),
        }

    def schedule(self) -> PolicySchedule:
        """Return (p_tp, p_o) of the epochs so far: p_tp smoothed, p_o with --uniform-share."""
        p_tp, p_o = zip(*self.history, strict=True)
        raw = PolicySchedule(self.space, np.array(p_tp), np.stack(p_o), self.provenance())
        policy = self.settings.policy
        return raw.with_uniform(policy.uniform_share).smoothed(policy.smoothing)

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next step depends on; its draws depend on the number of steps."""
        return {
            "steps": self.steps,
            "identity": self.identity(),
            "trials": self.trials.state_dict(),
            **self.learner.state_dict(),
            "parameters": self.parameters.state_dict(),
            "history": [(p_tp, torch.from_numpy(p_o)) for p_tp, p_o in self.history],
            "memory": self.memory,
        }

    def identity(self) -> dict[str, str]:
        """Return what a state can only be loaded into if it is the same, in words."""
        known = self.task.provenance()
        return {
            "model": self.learner.identity(),
            "search space": self.space.identity(),
            **{name: str(known[name]) for name in ("loss", "mean", "std") if name in known},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, own in self.identity().items():
            begun = state["identity"].get(name, own)  # 0.2.0 saved the first two
            if begun != own:
                raise ValueError(f"the run was started with another {name}: {begun}, not {own}")
        self.steps = state["steps"]
        self.trials.load_state_dict(state["trials"])
        self.learner.load_state_dict(state)
        self.parameters.load_state_dict(state["parameters"])
        self.history = [(p_tp, p_o.numpy()) for p_tp, p_o in state["history"]]
        self.memory = state["memory"]


def open_search(
    settings: SearchSettings,
    space: SearchSpace | None = None,
    device: torch.device | str = "cpu",
    ranks: Ranks = ALONE,
) -> Search:
    """Return a search on the data set of its settings; without a space on theirs."""
    task = open_task(settings, device, ranks)
    return Search(settings, space or settings.search_space(), task, device, ranks)
