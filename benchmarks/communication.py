"""Counting the bytes that a step communicates, and its operations, in a single process.

The steps are the real ones; only the all-reduce is replaced by a function that counts its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image
from torch import distributed
from torch.utils._python_dispatch import TorchDispatchMode

from ddas_gpu.data.coco import Annotated, Coco
from ddas_gpu.data.sources import ImageArrays
from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.models import build
from ddas_gpu.runs.runner import agreed
from ddas_gpu.search.algorithm import Search
from ddas_gpu.search.settings import SearchSettings, preset
from ddas_gpu.tasks.task import Task, open_task

SCALARS = 64  # numbers; no bucket of a gradient is that small


class _Done:
    def wait(self) -> None:
        pass


@dataclass
class Traffic:
    """The sizes in bytes of the collectives of one rank in a step."""

    gradients: list[int] = field(default_factory=list)
    scalars: list[int] = field(default_factory=list)
    launches: int = 0  # operations on tensors that compute something


@contextmanager
def counted() -> Iterator[Traffic]:
    """Count what is reduced inside."""
    traffic = Traffic()

    def all_reduce(tensor: torch.Tensor, *_: object, **__: object) -> _Done:
        sizes = traffic.scalars if tensor.numel() <= SCALARS else traffic.gradients
        sizes.append(tensor.numel() * tensor.element_size())
        return _Done()

    class Launches(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            traffic.launches += not function.is_view
            return function(*args, **(kwargs or {}))

    with mock.patch.object(distributed, "all_reduce", all_reduce), Launches():
        yield traffic


def search_traffic(data: str, policies: int, folder: Path) -> Traffic:
    """Return the traffic of a search step of a preset, on images small enough for a CPU."""
    settings = preset(data).replace(batch_size=2, val_batch_size=2, policies=policies)
    settings = settings.replace(train_images=2, val_images=2, image_size=32, decode="once")
    settings = settings.replace(crop="pad", resize="square")
    ranks = Ranks()
    search = Search(settings, settings.search_space(), _task(settings, folder, ranks), ranks=ranks)
    search.step()  # warm up: some facts of a model are found in the first step
    search.ranks.count = 2
    search.task.ranks = search.ranks
    with counted() as traffic:
        search.step()
        agreed(search.ranks, None)
    return traffic


def _task(settings: SearchSettings, folder: Path, ranks: Ranks) -> Task:
    """Return the preset's task, on two images of noise instead of its data set."""
    task, generator = open_task(settings, ranks=ranks), np.random.default_rng(0)
    if task.facts.has_boxes:
        file = folder / "noise.png"
        Image.fromarray(generator.integers(0, 256, (64, 64, 3), np.uint8)).save(file)
        boxes = np.array([[8.0, 8.0, 40.0, 40.0]])
        one = Annotated(file, 64, 64, boxes, np.array([0]), np.array([1024.0]), np.array([False]))
        both = Coco([one, one], tuple(map(str, range(80))))
    else:
        images = generator.integers(0, 256, (2, 32, 32, 3), np.uint8)
        names = tuple(map(str, range(settings.data.classes or 10)))
        both = ImageArrays(images, np.array([0, 1]), names)
        task.use_statistics(both)
    task.search_sets = lambda: (both, both)
    return task


def training_bytes(model: str, classes: int) -> tuple[int, int]:
    """Return the bytes of a step of DistributedDataParallel: gradients, and broadcast buffers."""
    with torch.device("meta"):
        network = build(model, classes)
    sizes = [
        sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        for tensors in (network.parameters(), network.buffers())
    ]
    return sizes[0], sizes[1]
