"""Carrying a training out: step, test, write it down, checkpoint, and stop when asked to."""

from __future__ import annotations

import io
import signal
import time
from typing import Any

from ddas_gpu.distributed.agreement import require_same
from ddas_gpu.runs.runner import Interrupts, agreed, restore
from ddas_gpu.runs.training_folder import TrainingFolder
from ddas_gpu.runs.training_progress import TrainingProgress
from ddas_gpu.train.loop import Training


def carry_out(training: Training, folder: TrainingFolder) -> signal.Signals | None:
    """Train to the end; or return the signal that came before."""
    ranks = training.ranks
    data = training.task.fingerprints()
    seconds = training.settings.run.checkpoint_seconds

    def checkpoint() -> float:
        folder.save_checkpoint({"data": data, "training": training.state_dict()})
        return time.monotonic()

    with ranks.together():
        restore(training, "training", folder, data)
        folder.start_metrics(training.epoch)
        last = checkpoint()
    require_same(ranks, {"numbers of steps in its checkpoint": training.steps})
    progress = TrainingProgress(
        training.task.score,
        training.steps,
        training.total_steps,
        training.steps_per_epoch,
        training.images_a_step,
        None if ranks.first else io.StringIO(),
    )
    received = None
    with Interrupts() as interrupts, progress:
        while not training.finished and received is None:
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
            if ranks.count == 1 or training.looked_at:
                received = agreed(ranks, interrupts.received)
        if not training.finished:
            checkpoint()
            return received
    return None


def best_weights(training: Training) -> dict[str, Any]:
    """The content of best.pt: weights and what it takes to use them."""
    return {
        "model": training.settings.training.model,
        "class_names": list(training.task.class_names),
        "image_size": training.settings.data.image_size,
        **training.best,
        "weights": training.weights(),
    }
