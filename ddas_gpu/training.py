"""Training a network under a policy schedule: the loop, epoch by epoch."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch.nn import functional as F

from ddas_gpu import streams
from ddas_gpu.evaluation import evaluate
from ddas_gpu.learning_rates import learning_rate
from ddas_gpu.models import build
from ddas_gpu.moving_average import MovingAverage
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.searching import Diverged
from ddas_gpu.streams import Stream
from ddas_gpu.training_batches import TestBatches, TrainingBatches
from ddas_gpu.training_settings import TrainSettings

STEPS_BETWEEN_CHECKS = 50  # of the loss on a GPU, where reading it means waiting


class Training:
    """The state of a training, and the step that moves it; knows nothing of files."""

    def __init__(
        self,
        settings: TrainSettings,
        schedule: PolicySchedule | None,
        num_classes: int,
        batches: TrainingBatches,
        test: TestBatches,
        device: torch.device | str = "cpu",
    ) -> None:
        self.settings, self.schedule = settings, schedule
        self.batches, self.test = batches, test
        self.device = torch.device(device)
        self.seed = settings.run.seed
        training = settings.training
        self.steps_per_epoch = batches.steps_per_epoch
        self.total_steps = training.epochs * self.steps_per_epoch
        torch.manual_seed(streams.number(self.seed, Stream.WEIGHTS))
        self.model = build(training.model, num_classes).to(self.device).train()
        if self.device.type == "cuda":  # what tensor cores want
            self.model.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            training.lr,
            momentum=training.momentum,
            weight_decay=training.weight_decay,
        )
        decay = training.moving_average
        self.average = MovingAverage(self.model, decay) if decay else None
        self.mixed = training.mixed_precision == "on" or (
            training.mixed_precision == "auto" and self.device.type == "cuda"
        )
        # float16 needs its loss scaled; CPUs compute in bfloat16, whose range is float32's.
        self.half = torch.float16 if self.device.type == "cuda" else torch.bfloat16
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=self.mixed and self.half is torch.float16
        )
        self.steps = 0  # done so far
        self.best: dict[str, Any] | None = None  # epoch and accuracy of the best test so far
        self._start_epoch()

    def _start_epoch(self) -> None:
        # Sums over the steps of an epoch, on the device: reading them would mean waiting.
        self.sums = torch.zeros(2, dtype=torch.float64, device=self.device)  # loss, right guesses
        self.seconds = {"data": 0.0, "training": 0.0, "evaluation": 0.0}

    @property
    def finished(self) -> bool:
        return self.steps == self.total_steps

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self.steps // self.steps_per_epoch

    def step(self) -> None:
        """One step of SGD."""
        start = time.perf_counter()
        # For models that draw themselves (dropout, Shake-Shake).
        torch.manual_seed(streams.number(self.seed, Stream.MODEL, self.steps))
        images, labels = self.batches.batch(self.steps)
        if self.device.type == "cuda":
            images = images.contiguous(memory_format=torch.channels_last)
        ready = time.perf_counter()
        with torch.autocast(self.device.type, self.half, enabled=self.mixed):
            outputs = self.model(images)
            loss = F.cross_entropy(
                outputs, labels, label_smoothing=self.settings.training.label_smoothing
            )
        self._descend(loss)
        right = (outputs.detach().argmax(1) == labels).double().mean()
        self.sums += torch.stack((loss.detach().double(), right))
        self.steps += 1
        if self.device.type == "cpu" or self.steps % STEPS_BETWEEN_CHECKS == 0:
            self.require_finite()
        self.seconds["data"] += ready - start
        self.seconds["training"] += time.perf_counter() - ready

    def _descend(self, loss: torch.Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(self.steps)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update(self.model)

    def learning_rate(self, step: int) -> float:
        """SGD's learning rate for a step."""
        training = self.settings.training
        return learning_rate(
            training.lr,
            training.lr_schedule,
            training.lr_steps,
            step,
            self.total_steps,
            self.steps_per_epoch,
        )

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
        """Evaluate after the last step of an epoch; what there is to tell, as in metrics.jsonl."""
        self.require_finite()
        start = time.perf_counter()
        with torch.autocast(self.device.type, self.half, enabled=self.mixed):
            tested = evaluate(self.model, self.test, self.weights())
        self.seconds["evaluation"] = time.perf_counter() - start
        if not math.isfinite(tested["test_loss"]):
            self._diverged("test loss")
        epoch = self.epoch - 1
        if self.best is None or tested["test_accuracy"] > self.best["accuracy"]:
            self.best = {"epoch": epoch, "accuracy": tested["test_accuracy"]}
        loss, right = (self.sums / self.steps_per_epoch).tolist()
        line = {
            "epoch": epoch,
            "step": self.steps,
            "loss": loss,
            "accuracy": right,
            **tested,
            "best_accuracy": self.best["accuracy"],
            "apply_probability": self.apply_probability(epoch),
            "learning_rate": self.learning_rate(self.steps - 1),
            "seconds": self.seconds,
            "images": self.steps_per_epoch * self.settings.training.batch,
        }
        self._start_epoch()
        return line

    def apply_probability(self, epoch: int) -> float:
        """p_tp in an epoch."""
        if self.schedule is None:
            return 0.0
        return self.schedule.at(epoch, self.settings.training.epochs)[0]

    def weights(self) -> dict[str, torch.Tensor]:
        """What is tested and handed out: the network's weights, or their moving average."""
        return self.model.state_dict() if self.average is None else self.average.tensors

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on; the randomness is in the number of steps."""
        self.require_finite()
        # A finite loss can still send a weight to infinity; such a state must not be kept.
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
