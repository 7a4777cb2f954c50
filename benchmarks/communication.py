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

from ddas_gpu.data import DataSet
from ddas_gpu.data.clean import AsTheyAre
from ddas_gpu.data.coco import Annotated
from ddas_gpu.detection.sets import DetectionSet
from ddas_gpu.detection.transforms import Square
from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.models import build
from ddas_gpu.runs.runner import agreed
from ddas_gpu.search.algorithm import Search
from ddas_gpu.search.settings import SearchSettings, preset

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
    settings = preset(data).replace(batch=2, val_batch=2, policies=policies)
    settings = settings.replace(train_images=2, val_images=2)
    sets = _sets(settings, folder)
    search = Search(settings, settings.search_space(), *sets, ranks=Ranks())
    search.step()  # warm up: some facts of a model are found in the first step
    search.ranks.count = 2
    search.task.ranks = search.ranks
    with counted() as traffic:
        search.step()
        agreed(search.ranks, None)
    return traffic


def _sets(settings: SearchSettings, folder: Path) -> tuple:
    generator = np.random.default_rng(0)
    if settings.data.data != "coco":
        images = generator.integers(0, 256, (2, 32, 32, 3), np.uint8)
        names = tuple(map(str, range(settings.data.classes or 10)))
        both = DataSet(images, np.array([0, 1]), names, AsTheyAre())
        return both, both
    file = folder / "noise.png"
    Image.fromarray(generator.integers(0, 256, (64, 64, 3), np.uint8)).save(file)
    boxes = np.array([[8.0, 8.0, 40.0, 40.0]])
    one = Annotated(file, 64, 64, boxes, np.array([0]), np.array([1024.0]), np.array([False]))
    names = tuple(map(str, range(80)))
    both = DetectionSet([one, one], names, Square(64))
    return both, both


def training_bytes(model: str, classes: int) -> tuple[int, int]:
    """Return the bytes of a step of DistributedDataParallel: gradients, and broadcast buffers."""
    with torch.device("meta"):
        network = build(model, classes)
    sizes = [
        sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        for tensors in (network.parameters(), network.buffers())
    ]
    return sizes[0], sizes[1]
