"""One step of a search, and one batch of a loader."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ddas_gpu.doctor.checks import CheckFailed, Finding, check
from ddas_gpu.doctor.machine import Machine
from ddas_gpu.doctor.pictures import write_classes
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import SearchSpace

if TYPE_CHECKING:
    from ddas_gpu.pipelines.loader import Loader

# The preset's network and policies on fewer digits.
DIGITS = {
    "train_images": 64,
    "val_images": 64,
    "batch_size": 16,
    "val_batch_size": 32,
    "warmup_epochs": 0,
}


@check("search step")
def search_step(machine: Machine) -> Finding:
    from ddas_gpu.search.algorithm import open_search
    from ddas_gpu.search.settings import preset

    search = open_search(preset("digits").replace(**DIGITS), device=machine.device)
    metrics = search.step()
    assert metrics is not None  # without a warm-up
    losses = metrics["clean_loss"], metrics["validation_loss"]
    if not all(map(math.isfinite, losses)):
        raise CheckFailed(f"the losses are not finite: {losses[0]}, {losses[1]}")
    seconds = {name: round(value, 4) for name, value in metrics["seconds"].items()}
    text = f"on {machine.device}, loss {losses[0]:.3f}, {sum(seconds.values()):.1f} s"
    return Finding(text, {"device": machine.device, "losses": losses, "seconds": seconds})


@check("loader batch")
def loader_batch(machine: Machine) -> Finding:
    root = write_classes(machine.folder / "batch", count=8, height=120, width=160)
    batches = open_loader(machine, root=root, batch_size=4, epochs=1, size=64, policy=True)
    images, labels = next(iter(batches))
    if tuple(images.shape) != (4, 3, 64, 64) or tuple(labels.shape) != (4,):
        raise CheckFailed(f"the batch has the shapes {tuple(images.shape)}, {tuple(labels.shape)}")
    if images.device.type != machine.device:
        raise CheckFailed(f"the batch is on {images.device}, not on {machine.device}")
    if not bool(images.isfinite().all()):
        raise CheckFailed("the batch has pixels that are not finite")
    return Finding(f"4 images on {images.device.type}, {images.dtype}".replace("torch.", ""))


def open_loader(
    machine: Machine, *, root: object, batch_size: int, epochs: int, size: int, policy: bool
) -> Loader:
    """Open a loader on the device of this machine, with a uniform policy or without one."""
    from ddas_gpu.pipelines import loader

    space = SearchSpace.preset("imagenet")
    uniform = PolicySchedule(space, np.ones(1), np.full((1, len(space)), 1 / len(space)))
    schedule = uniform if policy else None
    return loader(root, schedule, batch_size, epochs, machine.device, size=size)
