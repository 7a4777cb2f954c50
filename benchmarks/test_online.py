"""What `OnlineSearch` adds to the time of a training."""

from __future__ import annotations

from collections.abc import Callable

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
from ddas_gpu.pipelines.order import spread

EVERY = 8  # OnlineSearch's default
NOTE = (
    "ms per step of a training with SGD, and per step of the search (16 training and 32 validation "
    "images), of which there is one in every 8 training steps. The goal is a share of at most 10 %."
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
    ways = steps(source, model, batch_size, policies, device)
    times = take_turns(ways, rounds=rounds, round_seconds=0.02)
    median = {way: times[way].median for way in ways}
    share = median["search"] / median["training"] / EVERY
    columns = ("network", "L̂", *ways, "search / training")
    tables.get_or_make("Search while training", columns, NOTE).add(
        case, policies, *(f"{1e3 * median[way]:.1f}" for way in ways), f"{share:.1%}"
    )
    benchmark.extra_info["share"] = share
    benchmark.pedantic(ways["search"], rounds=1)


def steps(source, model, batch_size, policies, device) -> dict[str, Callable[[], None]]:
    """A training step and a step of the search, on the same network."""
    torch.manual_seed(0)
    network = build(model, len(source.class_names)).to(device).train()
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)
    pixels = torch.from_numpy(np.ascontiguousarray(source.images[:batch_size]))
    images = pixels.permute(0, 3, 1, 2).contiguous().to(device)
    labels = torch.from_numpy(source.labels[:batch_size]).to(device, torch.int64)
    validation = (source.images[1024:1536], source.labels[1024:1536])
    online = OnlineSearch(network, F.cross_entropy, validation, every=1, policies=policies)

    def train() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(images.float() / 255), labels).backward()
        optimizer.step()

    return {"training": train, "search": lambda: online.step(images, labels)}
