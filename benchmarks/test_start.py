"""Start-up time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest
from side_by_side import take_turns

NOTE = "Seconds in a new process, medians of interleaved runs; the kernels' cache is cold or warm."
FIRST_BATCH = (
    "import numpy as np; from ddas_gpu import SearchSpace, augment; "
    "augment(np.zeros((1, 32, 32, 3), np.uint8), [4, 8], SearchSpace.preset('cifar'))"
)


def run(*arguments: str, cache: str | None = None) -> None:
    environment = {**os.environ, **({"DDAS_CACHE": cache} if cache else {})}
    subprocess.run([sys.executable, *arguments], check=True, env=environment, capture_output=True)


def first_batch_without_a_cache() -> None:
    with tempfile.TemporaryDirectory() as cache:
        run("-c", FIRST_BATCH, cache=cache)


WAYS = {
    "python": lambda: run("-c", "pass"),
    "import numpy": lambda: run("-c", "import numpy"),
    "import torch": lambda: run("-c", "import torch"),
    "import ddas_gpu": lambda: run("-c", "import ddas_gpu"),
    "search --help": lambda: run("-m", "ddas_gpu.search", "--help"),
    "first batch, kernels cached": lambda: run("-c", FIRST_BATCH),
    "first batch, kernels compiled": first_batch_without_a_cache,
}


def test_start(benchmark, tables):
    times = take_turns(WAYS, rounds=5)
    table = tables.get_or_make("Start-up", ("what", "seconds", "quartiles"), NOTE)
    for what, timing in times.items():
        table.add(what, f"{timing.median:.2f}", f"{timing.low:.2f}–{timing.high:.2f}")
    benchmark.extra_info["ratio"] = times["import torch"].median / times["search --help"].median
    benchmark.pedantic(WAYS["import ddas_gpu"], rounds=2)


@pytest.mark.parametrize("module", ["torch", "nvidia.dali", "cupy", "kornia"])
def test_help_leaves_heavy_packages_alone(module):
    """The times above depend on it."""
    code = (
        "import sys, runpy; sys.argv = ['search', '--help']\n"
        "try: runpy.run_module('ddas_gpu.search', run_name='__main__')\n"
        f"except SystemExit: sys.exit({module!r} in sys.modules)"
    )
    run("-c", code)
