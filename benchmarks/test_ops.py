"""The op bank against other libraries: every op, and the whole bank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from peers import (
    IMAGE_PEERS,
    PEERS,
    WITHOUT_WORK,
    argument_of,
    batch_peers,
    pillow_without_arrays,
)
from peers.common import Call
from side_by_side import harmonic_mean, take_turns

import ddas_gpu
from ddas_gpu.ops import OPS, apply_op

OURS, COPY, WITHOUT_ARRAYS = "ddas_gpu", "copy", "Pillow, no arrays"
NOTE = (
    "µs an image: batches of 32 photographs, one thread, level 6, medians of interleaved rounds "
    "(quartiles of ours in brackets). Ratio: the fastest of the four peers over ours; below 1 we "
    "lose. Pillow without arrays, for those whose images are Pillow's already, is not among them. "
    "Copies: ours over a plain copy of the batch, the limit that memory sets. In parentheses and "
    "not counted: albumentations hands back the very image where it leaves one alone."
)
WHOLE_NOTE = (
    "Harmonic mean over the ops, images/s; the best of the four peers is chosen for each op. "
    "Least: the op with the smallest ratio of its own. The last two columns also let Pillow work "
    "on its own images, without arrays."
)


@pytest.fixture
def threads():
    """Set the threads of the op bank for a test."""
    before = ddas_gpu.ops.get_num_threads()
    yield ddas_gpu.set_num_threads
    ddas_gpu.set_num_threads(before)


@pytest.fixture(scope="module")
def batches(photographs):
    """A function of (batch, size) that returns so many photographs of that size."""

    def make(batch: int, size: int) -> np.ndarray:
        few = np.stack([np.asarray(photo.resize((size, size))) for photo in photographs[:batch]])
        return np.resize(few, (batch, *few.shape[1:]))

    return make


def input_and_output(images: np.ndarray, device: str) -> tuple[Any, Any]:
    """Return the batch on the device, and memory for the result."""
    if device == "cpu":
        return images, np.empty_like(images)
    moved = torch.from_numpy(images).to(device)
    return moved, torch.empty_like(moved)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("size", [32, 224])
def test_op(name, size, batches, threads, device, benchmark, tables):
    threads(1)
    images = batches(32, size)
    argument = argument_of(name)
    source, out = input_and_output(images, device)

    def ours():
        return apply_op(source, name, argument, out=out)

    def copy():
        out[...] = source

    times = take_turns({OURS: ours, COPY: copy, **peer_calls(name, images, device)})
    ratio = min(times[peer].median for peer in counted(name, times)) / times[OURS].median
    each = {way: f"{timing.median / 32 * 1e6:.2f}" for way, timing in times.items()}
    if name == WITHOUT_WORK[1]:
        each[WITHOUT_WORK[0]] = f"({each[WITHOUT_WORK[0]]})"
    spread = f"[{times[OURS].low / 32 * 1e6:.2f}–{times[OURS].high / 32 * 1e6:.2f}]"
    columns = ("op", OURS, *PEERS, WITHOUT_ARRAYS, "ratio", "copies")
    tables.get_or_make(f"Op bank, {size} px", columns, NOTE).add(
        name,
        f"{each[OURS]} {spread}",
        *(each.get(peer, "–") for peer in (*PEERS, WITHOUT_ARRAYS)),
        f"{ratio:.2f}×",
        f"{times[OURS].median / times[COPY].median:.1f}",
    )
    benchmark.extra_info.update(ratio=ratio, **each)
    benchmark.pedantic(ours, rounds=5, iterations=5)


@pytest.mark.parametrize("count", [1, 2], ids=lambda n: f"{n} threads")
@pytest.mark.parametrize(
    ("size", "batch"),
    [
        (32, 1),
        (32, 32),
        (32, 256),
        (96, 1),
        (96, 32),
        (96, 256),
        (224, 1),
        (224, 32),
        (224, 256),
        (512, 1),
        (512, 32),  # a batch of 256 takes the peers ten minutes
    ],
)
def test_whole_bank(size, batch, count, batches, threads, device, benchmark, tables):
    threads(count)
    images = batches(batch, size)
    source, out = input_and_output(images, device)
    ours, best, spared = {}, {}, {}
    for name in OPS:
        argument = argument_of(name)

        def call(name=name, argument=argument):
            return apply_op(source, name, argument, out=out)

        ways = {OURS: call, **peer_calls(name, images, device, count)}
        times = take_turns(ways, rounds=5, round_seconds=0.002)
        rates = {way: batch / timing.median for way, timing in times.items()}
        ours[name] = rates[OURS]
        best[name] = max(rates[peer] for peer in counted(name, rates))
        spared[name] = max(best[name], rates[WITHOUT_ARRAYS])
    means = [harmonic_mean(list(rates.values())) for rates in (ours, best, spared)]
    least = min(OPS, key=lambda name: ours[name] / best[name])
    columns = (
        "size",
        "batch",
        "threads",
        OURS,
        "best",
        "ratio",
        "least",
        "best without arrays",
        "ratio ",
    )
    tables.get_or_make("Op bank, whole", columns, WHOLE_NOTE).add(
        f"{size} px",
        batch,
        count,
        f"{means[0]:,.0f}",
        f"{means[1]:,.0f}",
        f"{means[0] / means[1]:.1f}×",
        f"{least} {ours[least] / best[least]:.2f}×",
        f"{means[2]:,.0f}",
        f"{means[0] / means[2]:.1f}×",
    )
    benchmark.extra_info["ratio"] = means[0] / means[1]
    benchmark.pedantic(call, rounds=3, iterations=1)


def peer_calls(name: str, images: np.ndarray, device: str, threads: int = 1) -> dict[str, Call]:
    """Return a call for each peer that has the op."""
    peers = {**IMAGE_PEERS, **batch_peers(device), WITHOUT_ARRAYS: pillow_without_arrays}
    made = {peer: make(name, images, threads) for peer, make in peers.items()}
    return {peer: call for peer, call in made.items() if call is not None}


def counted(name: str, ways: dict[str, object]) -> list[str]:
    """Return the peers that have this op."""
    return [peer for peer in PEERS if peer in ways and (peer, name) != WITHOUT_WORK]
