"""The op bank against what people use today: every op by itself, and the whole bank."""

from __future__ import annotations

import numpy as np
import pytest
from peers import ALL_PEERS, CPU_PEERS, argument_of, pillow_without_arrays
from side_by_side import Timing, harmonic_mean, take_turns

import ddas_gpu
from ddas_gpu.ops import OPS, apply_op

OURS, COPY, WITHOUT_ARRAYS = "ddas_gpu", "copy", "Pillow, no arrays"
PEERS = (*ALL_PEERS, WITHOUT_ARRAYS)
NOTE = (
    "µs an image: batches of 32 photographs, one thread, level 6, medians of interleaved rounds "
    "(quartiles of ours in brackets). Ratio: the faster of Pillow and albumentations over ours. "
    "Copies: ours over a plain copy of the batch, the limit that memory sets."
)
WHOLE_NOTE = (
    "Harmonic mean over the ops, images/s; the best of Pillow and albumentations is chosen for "
    "each op. The last two columns also let Pillow work on its own images, without arrays."
)


@pytest.fixture
def threads():
    """Sets the threads of the op bank for a test."""
    before = ddas_gpu.ops.get_num_threads()
    yield ddas_gpu.set_num_threads
    ddas_gpu.set_num_threads(before)


@pytest.fixture(scope="module")
def batches(photographs):
    """(batch, size) -> that many photographs of that size."""

    def make(batch: int, size: int) -> np.ndarray:
        few = np.stack([np.asarray(photo.resize((size, size))) for photo in photographs[:batch]])
        return np.resize(few, (batch, *few.shape[1:]))

    return make


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("size", [32, 224])
def test_op(name, size, batches, threads, benchmark, tables):
    threads(1)
    images = batches(32, size)
    argument, out = argument_of(name), np.empty_like(images)

    def ours():
        return apply_op(images, name, argument, out=out)

    made = {peer: make(name, images) for peer, make in ALL_PEERS.items()}
    made[WITHOUT_ARRAYS] = pillow_without_arrays(name, images)
    ways = {OURS: ours, COPY: lambda: np.copyto(out, images)}
    ways |= {peer: call for peer, call in made.items() if call is not None}
    times = take_turns(ways)
    ratio = best_peer(times) / times[OURS].median
    each = {way: f"{timing.median / 32 * 1e6:.2f}" for way, timing in times.items()}
    spread = f"[{times[OURS].low / 32 * 1e6:.2f}–{times[OURS].high / 32 * 1e6:.2f}]"
    tables.get_or_make(f"Op bank, {size} px", ("op", OURS, *PEERS, "ratio", "copies"), NOTE).add(
        name,
        f"{each[OURS]} {spread}",
        *(each.get(peer, "–") for peer in PEERS),
        f"{ratio:.2f}×",
        f"{times[OURS].median / times[COPY].median:.1f}",
    )
    benchmark.extra_info.update(ratio=ratio, **each)
    benchmark.pedantic(ours, rounds=5, iterations=5)


@pytest.mark.parametrize("count", [1, 2], ids=lambda n: f"{n} threads")
@pytest.mark.parametrize(
    ("size", "batch"),
    [(32, 1), (32, 32), (32, 256), (96, 32), (224, 1), (224, 32), (224, 256), (512, 1), (512, 32)],
)
def test_whole_bank(size, batch, count, batches, threads, benchmark, tables):
    threads(count)
    images, few = batches(batch, size), batches(min(batch, 8), size)  # the peers' time is linear
    out = np.empty_like(images)
    ours, best, spared = [], [], []
    for name in OPS:
        argument = argument_of(name)
        made = {peer: make(name, few, count) for peer, make in CPU_PEERS.items()}
        ways = {peer: way for peer, way in made.items() if way is not None}
        ways[WITHOUT_ARRAYS] = pillow_without_arrays(name, few, count)

        def call(name=name, argument=argument):
            return apply_op(images, name, argument, out=out)

        times = take_turns({OURS: call, **ways}, rounds=4, round_seconds=0.002)
        ours.append(batch / times[OURS].median)
        best.append(len(few) / best_peer(times))
        spared.append(max(best[-1], len(few) / times[WITHOUT_ARRAYS].median))
    means = [harmonic_mean(rates) for rates in (ours, best, spared)]
    columns = ("size", "batch", "threads", OURS, "best", "ratio", "best without arrays", "ratio ")
    tables.get_or_make("Op bank, whole", columns, WHOLE_NOTE).add(
        f"{size} px", batch, count, f"{means[0]:,.0f}",
        f"{means[1]:,.0f}", f"{means[0] / means[1]:.1f}×",
        f"{means[2]:,.0f}", f"{means[0] / means[2]:.1f}×",
    )  # fmt: skip
    benchmark.extra_info["ratio"] = means[0] / means[1]
    benchmark.pedantic(call, rounds=3, iterations=1)


def best_peer(times: dict[str, Timing]) -> float:
    """Seconds of the faster of the two peers that the targets name."""
    return min(times[peer].median for peer in CPU_PEERS if peer in times)
