"""Every kernel compiles for every architecture we support and keeps its values in registers.

NVRTC needs no GPU, and it is what compiles the kernels on a user's machine.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness.assembler import (
    ARCHITECTURES,
    DoesNotCompile,
    basic_blocks,
    skip_unless_known,
    usage_of,
)
from harness.host_kernels import KERNELS

pytest.importorskip("cupy.cuda", reason="needs CuPy")

SOURCES = sorted(path.name for path in KERNELS.glob("*.cu"))


@pytest.fixture(params=ARCHITECTURES, ids=lambda number: f"sm_{number}")
def architecture(request: pytest.FixtureRequest) -> int:
    skip_unless_known(request.param)
    return request.param


@pytest.mark.parametrize("source", SOURCES)
def test_kernels_compile_and_do_not_spill(source: str, architecture: int) -> None:
    kernels = usage_of((KERNELS / source).read_text(), source, architecture)
    assert Path(source).stem in kernels
    for name, usage in kernels.items():
        assert usage.spilled_bytes == 0, f"{name}: {usage}"
        assert usage.shared_bytes <= 48 << 10, f"{name}: {usage}"


@pytest.mark.parametrize("source", SOURCES)
def test_pixels_are_loaded_whole_before_they_are_stored(source: str, architecture: int) -> None:
    """A load behind a store waits for it: the compiler must assume that they overlap."""
    for block in basic_blocks((KERNELS / source).read_text(), source, architecture):
        accesses = "".join(line[0] for line in block if re.match(r"(ld|st)\.global", line))
        for stores in re.findall("(s+)l", accesses):  # in unrolled loops: the next pixel
            assert len(stores) % 3 == 0, "\n".join(block)


@pytest.mark.parametrize("source", ["solarize.cu", "posterize.cu", "augment.cu"])
def test_four_pixels_are_three_words(source: str, architecture: int) -> None:
    blocks = basic_blocks((KERNELS / source).read_text(), source, architecture)
    stores = [sum(bool(re.match(r"st\.global\.[bu]32", line)) for line in b) for b in blocks]
    assert any(stores) and all(count % 3 == 0 for count in stores)


def test_spills_are_seen(architecture: int) -> None:
    """A block of 1024 threads leaves each of them 64 registers; here they want 128."""
    text = """
    extern "C" __global__ void __launch_bounds__(1024) crowded(float* v) {
        float mine[128];
        for (int i = 0; i < 128; ++i) mine[i] = v[1024 * i + threadIdx.x];
        __syncthreads();
        for (int i = 0; i < 128; ++i) v[1024 * i + threadIdx.x] = mine[127 - i];
    }"""
    assert usage_of(text, "crowded.cu", architecture)["crowded"].spilled_bytes > 0


def test_a_kernel_that_does_not_compile_is_named(architecture: int) -> None:
    with pytest.raises(DoesNotCompile, match="broken.cu does not compile"):
        usage_of("__global__ void broken( {}", "broken.cu", architecture)
