"""How cost grows with the batch, the image, the space, the policies, their depth, and the model.

Each is a chart in benchmarks/growth/; a straight line of slope 1 is linear growth.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from side_by_side import take_turns

from ddas_gpu import SearchSpace
from ddas_gpu.ops import versions
from ddas_gpu.search.algorithm import open_search
from ddas_gpu.search.settings import preset

PICTURES = Path(__file__).parent / "growth"
NOTE = (
    "versions(), a batch and its versions under the policies, on the CPU; the line of the weights "
    "is whole steps of a search. The exponent is the slope over the upper half of the values, log "
    "against log: 1 is linear, 0 is no growth."
)


def call(batch=32, size=32, candidates=52, policies=3, depth=2):
    """Return one call with one of the numbers varied."""
    rng = np.random.default_rng(0)
    space = SearchSpace(SearchSpace.preset("cifar").candidates[:candidates], depth)
    if candidates > 52:
        levels = np.linspace(1, 20, -(-(candidates - 8) // 11))
        ops = dict.fromkeys(candidate.op for candidate in space)
        space = SearchSpace.of(ops, levels.tolist(), depth)
    images = rng.integers(0, 256, (batch, size, size, 3), dtype=np.uint8)
    out = np.empty((policies + 1, *images.shape), np.uint8)
    # Every draw has the same mix of ops, so that only the varied number matters.
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
    ways = {value: call(**{what: value}, **batch) for value in values}
    power = 2 if what == "size" else 1  # the size is a side length
    label = what if what != "size" else "pixels (side)"
    record(label, what, ways, power, benchmark, tables)


def test_growth_with_the_model(device, benchmark, tables):
    """Time whole search steps of wider and wider networks, by their number of weights."""
    ways = {}
    for width in (1, 2, 3, 4):
        settings = preset("digits").replace(model=f"wrn-10-{width}", policies=3)
        search = open_search(settings, device=device)
        ways[sum(weight.numel() for weight in search.learner.weights)] = search.step
    record("weights (search step)", "weights", ways, 1, benchmark, tables, rounds=3)


def record(label: str, what: str, ways: dict, power: int, benchmark, tables, rounds=7) -> None:
    """Time {value: call}; add a row to the table and write a chart."""
    values = tuple(ways)
    times = take_turns({str(value): way for value, way in ways.items()}, rounds)
    seconds = np.array([times[str(value)].median for value in values])
    work = np.array(values, float) ** power
    half = len(values) // 2
    slope = np.polyfit(np.log(work[half - 1 :]), np.log(seconds[half - 1 :]), 1)[0]
    cells = ", ".join(f"{v}: {s * 1e3:.2f}" for v, s in zip(values, seconds, strict=True))
    columns = ("what", "value: ms", "exponent")
    tables.get_or_make("Growth", columns, NOTE).add(label, cells, f"{slope:.2f}")
    draw_picture(what, label, values, seconds, power)
    benchmark.extra_info["exponent"] = slope
    benchmark.pedantic(ways[values[0]], rounds=1)


def draw_picture(
    what: str, label: str, values: tuple[int, ...], seconds: np.ndarray, power: int
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import EngFormatter, LogLocator

    PICTURES.mkdir(exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(4, 3), layout="constrained")
    linear = seconds[-1] * (np.array(values) / values[-1]) ** power
    axes.loglog(values, linear * 1e3, "--", color="grey", label="linear in the work")
    axes.loglog(values, seconds * 1e3, "o-", label="measured")
    axes.set(xlabel=label, ylabel="ms", title=f"time by {what}")
    axes.set_xticks(values, [EngFormatter(places=0, sep="")(value) for value in values])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.legend()
    figure.savefig(PICTURES / f"{what}.png", dpi=100)
    pyplot.close(figure)
