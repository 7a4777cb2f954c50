"""What `OnlineSearch` adds to the time of a training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import side_by_side
import torch
from side_by_side import take_turns
from torch.nn import functional as F

from ddas_gpu import OnlineSearch
from ddas_gpu.cli.shell import keep_freed_memory
from ddas_gpu.data.cifar import CifarReader
from ddas_gpu.data.decoding import read_images, to_size
from ddas_gpu.data.digits import open_digits
from ddas_gpu.data.sources import ImageArrays, ImageFiles
from ddas_gpu.models import build
from ddas_gpu.pipelines.order import spread
from ddas_gpu.search.timetable import EVERY

NOTE = (
    "CPU ms (one thread) per step of a training with SGD, per batch that is augmented under the "
    "present policy, and per step of the search (15 policies on 16 training images, 128 validation "
    f"images), of which there is at most one per {EVERY} training steps by default. Shares are of "
    "the training's time without augmentation; the goal for the search is at most 10 %."
)
DIGITS_BATCHES = (64, 128)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch, device: str) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    if device == "cpu":  # other processes may be running
        monkeypatch.setattr(side_by_side, "clock", cpu_seconds)
    yield
    torch.set_num_threads(before)


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


@pytest.mark.parametrize("batch_size", DIGITS_BATCHES)
def test_digits(batch_size, device, benchmark, tables):
    case = f"digits, small network, batches of {batch_size}"
    compare(case, open_digits(16), "small", batch_size, device, benchmark, tables, 25)


def test_cifar10(unpacked, device, benchmark, tables):
    files = CifarReader("cifar10").search_images(unpacked("cifar10.tar.gz"), 32)
    chosen = files.subset(spread(len(files), 1536))
    images = chosen if isinstance(chosen, ImageArrays) else in_memory(chosen)
    case = "CIFAR-10, WRN-16-2, batches of 128"
    compare(case, images, "wrn-16-2", 128, device, benchmark, tables, 4)


def in_memory(files: ImageFiles) -> ImageArrays:
    return ImageArrays(to_size(read_images(files.files), 32), files.labels, files.class_names)


def compare(case, source, model, batch_size, device, benchmark, tables, rounds) -> None:
    keep_freed_memory()
    ways = steps(source, model, batch_size, device)
    times = take_turns(ways, rounds=rounds, round_seconds=0.02)
    median = {way: times[way].median for way in ways}
    share = median["search"] / median["training"]
    columns = ("network", *ways, f"search, every {EVERY}", "search, every 8", "augmentation")
    tables.get_or_make("Search while training", columns, NOTE).add(
        case,
        *(f"{1e3 * median[way]:.1f}" for way in ways),
        f"{share / EVERY:.1%}",
        f"{share / 8:.1%}",
        f"{median['augmentation'] / median['training']:.1%}",
    )
    benchmark.extra_info["share"] = share / EVERY
    benchmark.pedantic(ways["search"], rounds=1)


def steps(source, model, batch_size, device) -> dict[str, Callable[[], object]]:
    """A training step, a batch under the policy and a step of the search, on the same network."""
    torch.manual_seed(0)
    network = build(model, len(source.class_names)).to(device).train()
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)
    pixels = torch.from_numpy(np.ascontiguousarray(source.images[:batch_size]))
    images = pixels.permute(0, 3, 1, 2).contiguous().to(device)
    labels = torch.from_numpy(source.labels[:batch_size]).to(device, torch.int64)
    validation = (source.images[1024:1536], source.labels[1024:1536])
    online = OnlineSearch(network, F.cross_entropy, validation, every=1)

    def train() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(images.float() / 255), labels).backward()
        optimizer.step()

    return {
        "training": train,
        "augmentation": lambda: online.augment(images),
        "search": lambda: online.step(images, labels),
    }
