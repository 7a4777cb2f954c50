"""Algorithm 1 of the paper: the network learns on augmented batches, α learns what helps it.

Indices: l = 1 … L̂ counts the policies of a step, 0 is the clean batch.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ddas_gpu import streams
from ddas_gpu.augmentation_parameters import AugmentationParameters, draw_policies
from ddas_gpu.data import DataSet
from ddas_gpu.distributed.buckets import MeanGradient
from ddas_gpu.distributed.ranks import ALONE, Ranks
from ddas_gpu.errors import Diverged
from ddas_gpu.gradients import PolicyGradients
from ddas_gpu.learning_rates import learning_rate
from ddas_gpu.models.synced_batch_norm import sync_batch_norm
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.settings import FREE_TO_CHANGE, SearchSettings
from ddas_gpu.space import SearchSpace
from ddas_gpu.streams import Stream
from ddas_gpu.tasks import Versions, task_for

if TYPE_CHECKING:
    from ddas_gpu.detection import DetectionSet


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
        train: DataSet | DetectionSet,
        validation: DataSet | DetectionSet,
        device: torch.device | str = "cpu",
        ranks: Ranks = ALONE,
    ) -> None:
        self.settings, self.space = settings, space
        self.train, self.validation = train, validation
        self.device, self.ranks = torch.device(device), ranks
        self.seed = settings.run.seed
        training, at_start = settings.training, settings.run.ranks
        self.share = ranks.share("--batch", training.batch, at_start)
        self.val_share = ranks.share("--val-batch", training.val_batch, at_start)
        self.steps_per_epoch = len(train) // self.share.whole
        self.total_steps = settings.training.epochs * self.steps_per_epoch
        self.task = task_for(settings, train, validation, self.device, ranks)
        torch.manual_seed(streams.number(self.seed, Stream.WEIGHTS))
        # Channels last in memory: a third faster on a CPU, and what a GPU's tensor cores want.
        self.model = self.task.build_model().train().to(memory_format=torch.channels_last)
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
        shares = self.parameters.weights(policies)
        gradients = PolicyGradients(
            self.model,
            self.task.loss,
            versions.inputs,
            versions.targets,
            weights=shares,
            method=self.settings.training.gradients,
        )
        losses, unchanged = self.over_all_ranks(gradients.losses, versions.unchanged)
        self.require_finite("training loss", *losses)
        gradient = self.mean_gradient()
        for name, part in gradients.weighted_parts():
            gradient.add(name, part)
        watch.lap("gradients", wait=False)
        # Read while the gradient is on its way.
        validation_batch = self.validation_batch(step)
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
            "images": len(versions.inputs) * self.share.whole + self.val_share.whole,
        }

    def versions(self, step: int, policies: np.ndarray, watch: Stopwatch) -> Versions:
        """The clean batch of a step and its version under each policy, ready for the network."""
        clean = self.training_batch(step)
        watch.lap("data")
        signs = streams.number(self.seed, Stream.SIGNS, step)
        holes = streams.generator(self.seed, Stream.HOLES, step)
        versions = self.task.versions(clean, policies, self.space, signs, holes, self.share)
        watch.lap("augment")
        return versions

    def training_batch(self, step: int) -> Any:
        """The clean batch of a step, as the task has it: images with labels, or with boxes."""
        epoch, place = divmod(step, self.steps_per_epoch)
        order = streams.generator(self.seed, Stream.TRAINING_ORDER, epoch)
        indices = batch_of(order, len(self.train), place, self.share.whole)
        crops = streams.generator(self.seed, Stream.CROPS, step)
        return self.task.clean_batch(indices, crops, self.share)

    def validation_batch(self, step: int) -> tuple[torch.Tensor, Any]:
        """Inputs and targets of a step's validation images."""
        size = self.val_share.whole
        cycle, place = divmod(step, len(self.validation) // size)
        order = streams.generator(self.seed, Stream.VALIDATION_ORDER, cycle)
        indices = batch_of(order, len(self.validation), place, size)
        crops = streams.generator(self.seed, Stream.CROPS, step)
        return self.task.validation_batch(indices[self.val_share.rows], crops)

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
        torch.autograd.grad(loss, self.weights)
        for hook in hooks:
            hook.remove()
        return self.ranks.mean(loss.detach()).item(), gradient.result()

    def require_finite(self, what: str, *values: float) -> None:
        if not all(math.isfinite(value) for value in values):
            raise Diverged(
                f"the {what} is no longer a finite number in step {self.steps} of "
                f"{self.total_steps}: try a smaller --lr than {self.settings.training.lr:g}"
            )

    def fingerprints(self) -> list[int]:
        """Numbers that tell these training and validation images from others."""
        return [self.train.fingerprint(), self.validation.fingerprint()]

    def schedule(self) -> PolicySchedule:
        """What the epochs so far have found, p_tp smoothed."""
        p_tp, p_o = zip(*self.history, strict=True)
        search = self.settings.to_json()
        recorded = {name: v for name, v in search.items() if name not in FREE_TO_CHANGE}
        raw = PolicySchedule(self.space, np.array(p_tp), np.stack(p_o), recorded)
        return raw.smoothed(self.settings.policy.smoothing)

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on; the randomness is in the number of steps."""
        return {
            "steps": self.steps,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "parameters": self.parameters.state_dict(),
            "history": [(p_tp, torch.from_numpy(p_o)) for p_tp, p_o in self.history],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.parameters.load_state_dict(state["parameters"])
        self.history = [(p_tp, p_o.numpy()) for p_tp, p_o in state["history"]]


def batch_of(order: np.random.Generator, count: int, place: int, size: int) -> np.ndarray:
    """Batch number `place` of a random order of `count` images."""
    return order.permutation(count)[place * size : (place + 1) * size]


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
