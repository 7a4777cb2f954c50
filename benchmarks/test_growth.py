"""How cost grows with the batch, the image, the space, the policies and their depth.

Each is a picture in benchmarks/growth/; a straight line of slope 1 is linear growth.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from side_by_side import take_turns

from ddas_gpu import SearchSpace
from ddas_gpu.ops import versions

PICTURES = Path(__file__).parent / "growth"
NOTE = (
    "versions(): a batch and its versions under the policies, on the CPU. The exponent is the "
    "slope over the upper half of the values, log against log: 1 is linear, 0 is no growth."
)


def call(batch=32, size=32, candidates=52, policies=3, depth=2):
    """One call with one of the numbers varied."""
    rng = np.random.default_rng(0)
    space = SearchSpace(SearchSpace.preset("cifar").candidates[:candidates], depth)
    if candidates > 52:
        levels = np.linspace(1, 20, -(-(candidates - 8) // 11))
        ops = dict.fromkeys(candidate.op for candidate in space)
        space = SearchSpace.of(ops, levels.tolist(), depth)
    images = rng.integers(0, 256, (batch, size, size, 3), dtype=np.uint8)
    out = np.empty((policies + 1, *images.shape), np.uint8)
    # Every draw has every kind of op alike, so that only the varied number makes a difference.
    chosen = np.resize(np.arange(8, 52) % len(space), (policies, depth))
    return lambda: versions(images, chosen, space, out=out)


GROWTH = {
    "batch": (8, 16, 32, 64, 128, 256),
    "size": (32, 64, 128, 256, 512),
    "candidates": (13, 26, 52, 140, 558),
    "policies": (1, 2, 4, 8, 11),
    "depth": (1, 2, 4, 8),
}


@pytest.mark.parametrize("what", GROWTH)
def test_growth(what, benchmark, tables):
    values = GROWTH[what]
    batch = {"batch": 8} if what == "size" else {}
    ways = {str(value): call(**{what: value}, **batch) for value in values}
    times = take_turns(ways, rounds=7)
    seconds = np.array([times[str(value)].median for value in values])
    work = np.array(values, float) ** (2 if what == "size" else 1)  # a size is a side
    half = len(values) // 2
    slope = np.polyfit(np.log(work[half - 1 :]), np.log(seconds[half - 1 :]), 1)[0]
    cells = ", ".join(f"{v}: {s * 1e3:.2f}" for v, s in zip(values, seconds, strict=True))
    tables.get_or_make("Growth", ("what", "value: ms", "exponent"), NOTE).add(
        what if what != "size" else "pixels (side)", cells, f"{slope:.2f}"
    )
    draw_picture(what, values, seconds)
    benchmark.extra_info["exponent"] = slope
    benchmark.pedantic(ways[str(values[0])], rounds=3)


def draw_picture(what: str, values: tuple[int, ...], seconds: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    PICTURES.mkdir(exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(4, 3), layout="constrained")
    power = 2 if what == "size" else 1
    linear = seconds[-1] * (np.array(values) / values[-1]) ** power
    axes.loglog(values, linear * 1e3, "--", color="grey", label="linear in the work")
    axes.loglog(values, seconds * 1e3, "o-", label="measured")
    axes.set(xlabel=what, ylabel="ms", title=f"versions() by {what}")
    axes.legend()
    figure.savefig(PICTURES / f"{what}.png", dpi=100)
    pyplot.close(figure)
