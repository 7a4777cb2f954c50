"""What `OnlineSearch` adds to the time of a training."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
import pytest
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
from ddas_gpu.pipelines.loader import spread

NOTE = (
    "ms for 8 steps of a training with SGD, among them one step of the search (every=8, on 16 "
    "training and 32 validation images). The training without a search augments nothing; `augment` "
    "is the cost of any policy. The goal is a search of at most 10 % of the training's time."
)
CASES = {
    "digits, small network, batches of 64": ("small", 64),
    "digits, small network, batches of 128": ("small", 128),
}


@pytest.mark.parametrize("policies", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_digits(case, policies, device, benchmark, tables):
    model, batch_size = CASES[case]
    compare(case, open_digits(16), model, batch_size, policies, device, benchmark, tables, 9)


@pytest.mark.parametrize("policies", [1, 2])
def test_cifar10(unpacked, policies, device, benchmark, tables):
    files = CifarReader("cifar10").search_images(unpacked("cifar10.tar.gz"), 32)
    chosen = files.subset(spread(len(files), 1536))
    images = chosen if isinstance(chosen, ImageArrays) else in_memory(chosen)
    case = "CIFAR-10, WRN-16-2, batches of 128"
    compare(case, images, "wrn-16-2", 128, policies, device, benchmark, tables, 3)


def in_memory(files: ImageFiles) -> ImageArrays:
    return ImageArrays(to_size(read_images(files.files), 32), files.labels, files.class_names)


def compare(case, source, model, batch_size, policies, device, benchmark, tables, rounds) -> None:
    keep_freed_memory()
    ways: dict[str, Callable[[], None]] = {}
    for way in ("training", "augment", "search"):
        ways[way] = eight_steps(source, model, batch_size, policies, way, device)
    times = take_turns(ways, rounds=rounds, round_seconds=0.05)
    median = {way: times[way].median for way in ways}
    share = (median["search"] - median["augment"]) / median["training"]
    title, columns = "Search while training", ("training", "L̂", *ways, "search / training")
    tables.get_or_make(title, columns, NOTE).add(
        case, policies, *(f"{1e3 * median[way]:.1f}" for way in ways), f"{share:.1%}"
    )
    benchmark.extra_info["share"] = share
    benchmark.pedantic(ways["search"], rounds=1)


def eight_steps(source, model, batch_size, policies, way, device) -> Callable[[], None]:
    """A training whose calls make eight steps each."""
    torch.manual_seed(0)
    network = build(model, len(source.class_names)).to(device).train()
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)
    pixels = torch.from_numpy(np.ascontiguousarray(source.images[:1024])).permute(0, 3, 1, 2)
    images = pixels.contiguous().to(device)
    labels = torch.from_numpy(source.labels[:1024]).to(device, torch.int64)
    validation = (source.images[1024:1536], source.labels[1024:1536])
    options = {"every": 8 if way == "search" else 10**9, "policies": policies}
    online = OnlineSearch(network, F.cross_entropy, validation, **options)
    numbers = count()

    def call() -> None:
        for _ in range(8):
            first = next(numbers) * batch_size % 1024
            batch, targets = images[first : first + batch_size], labels[first : first + batch_size]
            if way == "search":
                online.step(batch, targets)
            if way != "training":
                batch = online.augment(batch)
            loss = F.cross_entropy(network(batch.float() / 255), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return call
