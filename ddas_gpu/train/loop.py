"""Training a network under a policy schedule: the loop, epoch by epoch."""

from __future__ import annotations

import math
import time
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddas_gpu import streams
from ddas_gpu.data.sources import Source
from ddas_gpu.data.splits import held_out
from ddas_gpu.distributed.ranks import ALONE, Ranks, in_touch
from ddas_gpu.errors import Diverged
from ddas_gpu.pipelines.batches import EvaluationBatches, StepBatches
from ddas_gpu.pipelines.order import Order, order_for
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.runs.network import learning_rate, make_sgd, mixed_precision, open_network
from ddas_gpu.space import check_space
from ddas_gpu.streams import Stream
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
        self.validated: Source | None = None  # to choose an epoch by
        if settings.data.val_root is not None:
            self.validated = task.validation_set(self.train)
        elif settings.data.val_share:
            generator = streams.generator(self.seed, Stream.SPLIT, 1)
            self.train, self.validated = held_out(self.train, settings.data.val_share, generator)
        self.feed = task.model_feed(self.train, training=True, schedule=schedule)
        self.batches = self._open_batches()
        self.test_batches = self._open_test(self.tested)
        self.val_batches = None if self.validated is None else self._open_test(self.validated)
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
        self.last: dict[str, Any] | None = None  # epoch and score of the last test
        self.best: dict[str, Any] | None = (
            None  # and of the epoch that the validation images choose
        )
        self._start_epoch()

    def _open_batches(self) -> StepBatches:
        settings, ranks = self.settings, self.ranks
        size = ranks.batch_size("--batch-size", settings.training.batch_size, settings.run.ranks)
        order = order_for(len(self.train), size, self.seed, ranks.rank, ranks.count)
        return StepBatches(self.feed, order, self.device.type, self._workers)

    def _open_test(self, source: Source) -> EvaluationBatches:
        feed = self.task.model_feed(source, training=False, like=self.feed)
        blocks = Order(
            len(source),
            self.settings.training.test_batch_size,
            shard_id=self.ranks.rank,
            num_shards=self.ranks.count,
            shuffle=False,
        )
        return EvaluationBatches(feed, blocks, self.device.type, self._workers)

    @property
    def _workers(self) -> int | None:
        return self.settings.data.workers or self.settings.run.threads

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
        epoch = self.epoch - 1
        last = self.epoch == self.settings.training.epochs
        due = self.epoch % self.settings.training.evaluate_every == 0
        tested = self._test(epoch) if due or last else {}
        means = (self.sums / self.steps_per_epoch).tolist()
        line = {
            "epoch": epoch,
            "step": self.steps,
            **dict(zip(("loss", *self.task.measured), means, strict=True)),
            **tested,
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
        tested = self._evaluate(self.test_batches, self.tested)
        score = self.task.facts.score
        self.last = {"epoch": epoch, score.key: tested[score.tested]}
        if self.val_batches is not None:
            found = self._evaluate(self.val_batches, self.validated)
            tested |= {name.replace("test_", "val_", 1): value for name, value in found.items()}
            value = tested[score.validated]
            if self.best is None or value > self.best[score.validated]:
                self.best = {**self.last, score.validated: value}
        self.seconds["evaluation"] = time.perf_counter() - start
        return tested

    def _evaluate(self, batches: EvaluationBatches, source: Source | None) -> dict[str, float]:
        with torch.autocast(self.device.type, self.half, enabled=self.mixed):
            found = self.task.test(self.model, self.weights(), batches, source)
        if not math.isfinite(found["test_loss"]):
            self._diverged("test loss")
        return found

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
            "last": self.last,
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
        # Older versions chose an epoch by its test, and did not keep the last one.
        self.steps, best, self.last = state["steps"], state["best"], state.get("last")
        self.best = None if self.validated is None else best
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
