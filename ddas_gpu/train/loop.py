"""Training a network under a policy schedule: the loop, epoch by epoch."""

from __future__ import annotations

import math
import time
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddas_gpu.distributed.ranks import ALONE, Ranks, in_touch
from ddas_gpu.errors import Diverged
from ddas_gpu.pipelines.batches import StepBatches
from ddas_gpu.pipelines.loader import EvaluationBatches, order_for
from ddas_gpu.pipelines.order import Order
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.runs.network import learning_rate, make_sgd, mixed_precision, open_network
from ddas_gpu.space import check_space
from ddas_gpu.tasks.task import Task, open_task
from ddas_gpu.train.moving_average import MovingAverage
from ddas_gpu.train.settings import TrainSettings

STEPS_BETWEEN_CHECKS = 50  # of the loss on a GPU, where reading it means waiting


class Training:
    """The state of a training, and its step; knows nothing of files.

    On several ranks each has its part of a step's images. Gradients and metrics are averaged, so
    that all ranks have the same numbers.
    """

    def __init__(
        self,
        settings: TrainSettings,
        schedule: PolicySchedule | None,
        task: Task,
        device: torch.device | str = "cpu",
        ranks: Ranks = ALONE,
    ) -> None:
        self.settings, self.schedule, self.task = settings, schedule, task
        self.device, self.ranks = torch.device(device), ranks
        self.seed = settings.run.seed
        if schedule is not None:
            check_space(schedule.space, task.facts.has_boxes, f"--policy {settings.policy.policy}")
        self.train, self.tested = task.training_sets()
        self.settings = settings = task.settings  # with presets that fit the data
        training = settings.training
        self.batches, self.test_batches = self._open_batches()
        self.steps_per_epoch = self.batches.per_epoch
        self.total_steps = training.epochs * self.steps_per_epoch
        self.model = open_network(task, self.train.class_names, settings.run, ranks)
        self.optimizer = make_sgd(self.model.parameters(), training)
        decay = training.moving_average
        self.average = MovingAverage(self.model, decay) if decay else None
        self.mixed, self.half = mixed_precision(training.amp, self.device)
        # The range of float16 is small: its loss is scaled. That of bfloat16 is float32's.
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=self.mixed and self.half is torch.float16
        )
        self.steps = 0  # done so far
        self.best: dict[str, Any] | None = None  # epoch and score of the best test so far
        self._start_epoch()

    def _open_batches(self) -> tuple[StepBatches, EvaluationBatches]:
        task, settings, ranks = self.task, self.settings, self.ranks
        feed = task.model_feed(self.train, training=True, schedule=self.schedule)
        size = ranks.batch_size("--batch-size", settings.training.batch_size, settings.run.ranks)
        order = order_for(len(self.train), size, self.seed, ranks.rank, ranks.count)
        workers = settings.data.workers or settings.run.threads
        test = task.model_feed(self.tested, training=False)
        blocks = Order(
            len(self.tested),
            settings.training.test_batch_size,
            shard_id=ranks.rank,
            num_shards=ranks.count,
            shuffle=False,
        )
        device = self.device.type
        return StepBatches(feed, order, device, workers), EvaluationBatches(
            test, blocks, device, workers
        )

    def _start_epoch(self) -> None:
        # Sums over the steps of an epoch, on the device: reading them would mean waiting.
        # Of the loss, and of what else the task measures.
        count = 1 + len(self.task.measured)
        self.sums = torch.zeros(count, dtype=torch.float64, device=self.device)
        self.seconds = {"data": 0.0, "training": 0.0, "evaluation": 0.0}

    @cached_property
    def network(self) -> nn.Module:
        """The model, in DDP where there are several ranks; they build it in their first step."""
        if self.ranks.count == 1:
            return self.model
        with in_touch():
            gpu = [self.device] if self.device.type == "cuda" else None
            return DistributedDataParallel(self.model, device_ids=gpu)

    @property
    def finished(self) -> bool:
        return self.steps == self.total_steps

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self.steps // self.steps_per_epoch

    def step(self) -> None:
        """Run one step of SGD."""
        start = time.perf_counter()
        self.ranks.seed_network(self.seed, self.steps)
        images, targets = self.task.training_inputs(self.batches.batch(self.steps))
        images = images.contiguous(memory_format=torch.channels_last)
        ready = time.perf_counter()
        with in_touch():
            with torch.autocast(self.device.type, self.half, enabled=self.mixed):
                outputs = self.network(images)
                loss = self.task.loss(outputs, targets)
            self._descend(loss)
        with torch.no_grad():
            measured = self.task.measure(outputs, targets)
        self.sums += self.ranks.mean(torch.stack([loss.detach().double(), *measured]))
        self.steps += 1
        if self.looked_at:
            self.require_finite()
        self.seconds["data"] += ready - start
        self.seconds["training"] += time.perf_counter() - ready

    @property
    def looked_at(self) -> bool:
        """Whether this is a step after which the device is waited for."""
        often = self.device.type == "cpu" or self.steps % STEPS_BETWEEN_CHECKS == 0
        return often or self.end_of_epoch

    def _descend(self, loss: torch.Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(self.steps)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        largest = self.settings.training.clip_grad_norm
        if largest:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), largest)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update(self.model)

    def learning_rate(self, step: int) -> float:
        """Return SGD's learning rate for a step."""
        steps = self.total_steps, self.steps_per_epoch
        return learning_rate(self.settings.training, step, *steps)

    def require_finite(self) -> None:
        if not math.isfinite(float(self.sums[0])):
            self._diverged("loss")

    def _diverged(self, what: str) -> None:
        raise Diverged(
            f"the {what} is no longer a finite number in step {self.steps} of "
            f"{self.total_steps}: try a smaller --lr than {self.settings.training.lr:g}"
        )

    @property
    def end_of_epoch(self) -> bool:
        return self.steps > 0 and self.steps % self.steps_per_epoch == 0

    def finish_epoch(self) -> dict[str, Any]:
        """Test, if due, after the last step of an epoch; return its line of metrics.jsonl."""
        self.require_finite()
        epoch, score = self.epoch - 1, self.task.facts.score
        last = self.epoch == self.settings.training.epochs
        due = self.epoch % self.settings.training.evaluate_every == 0
        tested = self._test(epoch) if due or last else {}
        best = {} if self.best is None else {score.best: self.best[score.key]}
        means = (self.sums / self.steps_per_epoch).tolist()
        line = {
            "epoch": epoch,
            "step": self.steps,
            **dict(zip(("loss", *self.task.measured), means, strict=True)),
            **tested,
            **best,
            "apply_probability": self.apply_probability(epoch),
            "learning_rate": self.learning_rate(self.steps - 1),
            "seconds": self.seconds,
            "images": self.steps_per_epoch * self.images_per_step,
        }
        self._start_epoch()
        return line

    @property
    def images_per_step(self) -> int:
        """On all ranks together."""
        return self.settings.training.batch_size * self.settings.run.ranks

    def _test(self, epoch: int) -> dict[str, float]:
        start = time.perf_counter()
        # Batch norm's running statistics are a rank's own until the next step.
        self.ranks.copy_from_first(self.weights().values())
        with torch.autocast(self.device.type, self.half, enabled=self.mixed):
            tested = self.task.test(self.model, self.weights(), self.test_batches, self.tested)
        self.seconds["evaluation"] = time.perf_counter() - start
        if not math.isfinite(tested["test_loss"]):
            self._diverged("test loss")
        score = self.task.facts.score
        if self.best is None or tested[score.tested] > self.best[score.key]:
            self.best = {"epoch": epoch, score.key: tested[score.tested]}
        return tested

    def apply_probability(self, epoch: int) -> float:
        """Return p_tp of an epoch."""
        if self.schedule is None:
            return 0.0
        return self.schedule.at(epoch, self.settings.training.epochs)[0]

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the weights to test and to save: the network's, or their moving average."""
        return self.model.state_dict() if self.average is None else self.average.tensors

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next step depends on; its draws depend on the number of steps."""
        self.require_finite()
        # A step with a finite loss can still make a weight infinite: do not save that state.
        if not all(value.isfinite().all() for value in self.model.parameters()):
            self._diverged("network")
        return {
            "steps": self.steps,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "scaler": self.scaler.state_dict(),
            "best": self.best,
            "sums": self.sums,
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        name = self.settings.training.model
        try:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"the checkpoint is not one of the model {name}: {reason}") from None
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        self.steps, self.best = state["steps"], state["best"]
        self.sums = state["sums"].to(self.device)
        self.seconds = state["seconds"]


def open_training(
    settings: TrainSettings,
    schedule: PolicySchedule | None,
    device: torch.device | str = "cpu",
    ranks: Ranks = ALONE,
) -> Training:
    """Return a training on the data set of its settings."""
    return Training(settings, schedule, open_task(settings, device, ranks), device, ranks)
