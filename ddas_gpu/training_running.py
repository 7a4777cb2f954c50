"""Carrying a training out: step, test, write it down, checkpoint, and stop when asked to."""

from __future__ import annotations

import signal
import time
from typing import Any

from ddas_gpu.running import Interrupts
from ddas_gpu.training import Training
from ddas_gpu.training_progress import TrainingProgress
from ddas_gpu.training_runs import TrainingFolder


def carry_out(training: Training, folder: TrainingFolder) -> signal.Signals | None:
    """Train to the end; or return the signal that came before."""
    data = training.task.fingerprints()
    seconds = training.settings.run.checkpoint_seconds

    def checkpoint() -> float:
        folder.save_checkpoint({"data": data, "training": training.state_dict()})
        return time.monotonic()

    state = folder.load_checkpoint()
    if state is not None:
        _restore(training, state, data, folder)
    folder.start_metrics(training.epoch)
    last = checkpoint()
    progress = TrainingProgress(
        training.task.score,
        training.steps,
        training.total_steps,
        training.steps_per_epoch,
        training.settings.training.batch,
    )
    with Interrupts() as interrupts, progress:
        while not training.finished and interrupts.received is None:
            training.step()
            progress.step()
            if training.end_of_epoch:
                metrics = training.finish_epoch()
                if training.best is not None and training.best["epoch"] == metrics["epoch"]:
                    folder.save_best(best_weights(training))
                folder.add_metrics(metrics)
                progress.epoch(metrics)
            if training.end_of_epoch or time.monotonic() - last >= seconds:
                last = checkpoint()
        if not training.finished:
            checkpoint()
            return interrupts.received
    return None


def _restore(
    training: Training, state: dict[str, Any], data: list[int], folder: TrainingFolder
) -> None:
    if not {"data", "training"} <= state.keys():
        raise ValueError(f"the checkpoint in {folder.path} is not one of a training")
    if state["data"] != data:
        raise ValueError(
            f"the run in {folder.path} was started with other images than there are now"
        )
    training.load_state_dict(state["training"])


def best_weights(training: Training) -> dict[str, Any]:
    """The content of best.pt: weights and what it takes to use them."""
    return {
        "model": training.settings.training.model,
        "class_names": list(training.task.class_names),
        "image_size": training.settings.data.image_size,
        **training.best,
        "weights": training.weights(),
    }
