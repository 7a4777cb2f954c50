"""The op bank against Pillow and albumentations: every op, one thread, batches of 32."""

from __future__ import annotations

import numpy as np
import pytest
from peers import PEERS, WITHOUT_ARRAYS, argument_of, pillow_without_arrays
from side_by_side import Timing, harmonic_mean, take_turns

import ddas_gpu
from ddas_gpu.ops import OPS, apply_op

BATCH = 32
SIZES = (32, 224)
COLUMNS = ("op", "ddas_gpu µs/image", *(f"{p} µs" for p in (*PEERS, WITHOUT_ARRAYS)), "ratio")
NOTE = (
    "Batches of 32 photographs, one thread, level 6. Ratio: the faster of Pillow and "
    "albumentations over ddas_gpu, medians of interleaved rounds; quartiles in brackets."
)

measured: dict[int, dict[str, dict[str, Timing]]] = {size: {} for size in SIZES}


@pytest.fixture(autouse=True)
def one_thread():
    before = ddas_gpu.ops.get_num_threads()
    ddas_gpu.set_num_threads(1)
    yield
    ddas_gpu.set_num_threads(before)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("size", SIZES)
def test_op(name, size, photographs, benchmark, tables):
    images = np.stack([np.asarray(photo.resize((size, size))) for photo in photographs])
    argument, out = argument_of(name), np.empty_like(images)

    def ours():
        return apply_op(images, name, argument, out=out)

    ways = {"ddas_gpu": ours, **{peer: call(name, images) for peer, call in PEERS.items()}}
    ways[WITHOUT_ARRAYS] = pillow_without_arrays(name, images)
    times = measured[size][name] = take_turns(ways)
    ratio = best_peer(times) / times["ddas_gpu"].median
    micro = {way: timing.median / BATCH * 1e6 for way, timing in times.items()}
    spread = (
        f"[{times['ddas_gpu'].low / BATCH * 1e6:.2f}–{times['ddas_gpu'].high / BATCH * 1e6:.2f}]"
    )
    table = tables.get_or_make(f"Op bank, {size} px", COLUMNS, NOTE)
    ours_cell = f"{micro.pop('ddas_gpu'):.2f} {spread}"
    table.add(name, ours_cell, *(f"{value:.2f}" for value in micro.values()), f"{ratio:.2f}×")
    benchmark.extra_info.update(ratio=ratio, size=size, **micro)
    benchmark.pedantic(ours, rounds=5, iterations=5)


@pytest.mark.parametrize("size", SIZES)
def test_whole_bank(size, tables):
    """The harmonic means over the bank: what a policy that draws all ops alike would see."""
    bank = measured[size]
    if len(bank) != len(OPS):
        pytest.skip("needs every op of this size to have been measured before")
    ours = harmonic_mean([BATCH / times["ddas_gpu"].median for times in bank.values()])
    best = harmonic_mean([BATCH / best_peer(times) for times in bank.values()])
    spared = harmonic_mean(
        [BATCH / min(best_peer(t), t[WITHOUT_ARRAYS].median) for t in bank.values()]
    )
    columns = ("size", "ddas_gpu images/s", "best peer an op", "ratio", "without arrays", "ratio ")
    note = (
        "Harmonic mean over the ops. The best peer is chosen for each op; the last columns also "
        "let Pillow work on its own images, without arrays."
    )
    table = tables.get_or_make("Op bank, whole", columns, note)
    table.add(
        f"{size} px", f"{ours:,.0f}", f"{best:,.0f}", f"{ours / best:.1f}×",
        f"{spared:,.0f}", f"{ours / spared:.1f}×",
    )  # fmt: skip


def best_peer(times: dict[str, Timing]) -> float:
    return min(times[peer].median for peer in PEERS)
