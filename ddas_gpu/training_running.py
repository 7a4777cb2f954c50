"""Carrying a training out: step, test, write it down, checkpoint, and stop when asked to."""

from __future__ import annotations

import signal
import time
import zlib
from typing import Any

import numpy as np

from ddas_gpu.data import DataSet
from ddas_gpu.data.clean import AsTheyAre, CentreCrop
from ddas_gpu.data.folder import read_image
from ddas_gpu.data.full_sets import FileSource, FullSets, Labelled
from ddas_gpu.running import Interrupts
from ddas_gpu.training import Training
from ddas_gpu.training_progress import TrainingProgress
from ddas_gpu.training_runs import TrainingFolder
from ddas_gpu.training_settings import TrainSettings

SAMPLES = 8


def carry_out(training: Training, sets: FullSets, folder: TrainingFolder) -> signal.Signals | None:
    """Train to the end; or return the signal that came before."""
    data = [fingerprint(sets.train), fingerprint(sets.test)]
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
                if training.best["epoch"] == metrics["epoch"]:
                    folder.save_best(best_weights(training, sets))
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


def best_weights(training: Training, sets: FullSets) -> dict[str, Any]:
    """The content of best.pt: weights and what it takes to use them."""
    return {
        "model": training.settings.training.model,
        "class_names": list(sets.class_names),
        "image_size": training.settings.data.image_size,
        "epoch": training.best["epoch"],
        "accuracy": training.best["accuracy"],
        "weights": training.weights(),
    }


def fingerprint(images: Labelled) -> int:
    """A number that tells these images from others; of files only the names are looked at."""
    checksum = zlib.crc32(np.ascontiguousarray(images.labels))
    if isinstance(images, FileSource):
        names = "\0".join(f"{file.parent.name}/{file.name}" for file in images.files)
        return zlib.crc32(names.encode(errors="surrogateescape"), checksum)
    return zlib.crc32(np.ascontiguousarray(images.images), checksum)


def sample_images(settings: TrainSettings, sets: FullSets) -> DataSet:
    """A few training images, evenly spread, for the report."""
    train = sets.train
    chosen = np.linspace(0, len(train.labels) - 1, min(SAMPLES, len(train.labels))).astype(int)
    labels = train.labels[chosen]
    if isinstance(train, FileSource):
        images = [read_image(train.files[index]) for index in chosen]
        return DataSet(images, labels, sets.class_names, CentreCrop(settings.data.image_size))
    return DataSet(train.images[chosen], labels, sets.class_names, AsTheyAre())
