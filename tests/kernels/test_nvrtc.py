"""Every kernel compiles for every architecture we support and keeps its values in registers.

NVRTC needs no GPU, and it is what compiles the kernels on a user's machine.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from ddas_gpu.ops.cuda import OPTIONS

nvrtc = pytest.importorskip("cupy.cuda", reason="needs CuPy").nvrtc

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
SOURCES = sorted(path.name for path in KERNELS.glob("*.cu"))
ARCHITECTURES = (75, 80, 90, 100, 120)

# What the assembler says of each kernel, given -v.
USAGE = re.compile(
    r"Function properties for (?P<name>\w+)\n"
    r".*?(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\n"
    r".*?Used (?P<registers>\d+) registers(?:.*? (?P<shared>\d+) bytes smem)?"
)


class Usage(NamedTuple):
    """What a thread, and of shared memory a block, of a kernel takes up."""

    registers: int
    shared_bytes: int
    spilled_bytes: int


def usage_of(text: str, name: str, architecture: int) -> dict[str, Usage]:
    """Compile to machine code; what each kernel in it uses."""
    program = nvrtc.createProgram(text, name, (), ())
    target = f"--gpu-architecture=sm_{architecture}"
    try:
        nvrtc.compileProgram(program, (*OPTIONS, f"-I{KERNELS}", target, "--ptxas-options=-v"))
    except nvrtc.NVRTCError:
        pytest.fail(f"{name} does not compile:\n{nvrtc.getProgramLog(program)}")
    log = nvrtc.getProgramLog(program)
    found = {
        match["name"]: Usage(
            int(match["registers"]),
            int(match["shared"] or 0),
            int(match["stores"]) + int(match["loads"]),
        )
        for match in USAGE.finditer(log)
    }
    assert found, f"no kernel found in the assembler's report:\n{log}"
    return found


@pytest.fixture(params=ARCHITECTURES, ids=lambda number: f"sm_{number}")
def architecture(request: pytest.FixtureRequest) -> int:
    try:
        supported = nvrtc.getSupportedArchs()
    except RuntimeError as problem:
        pytest.skip(f"NVRTC is not installed: {problem}")
    if request.param not in supported:
        pytest.skip(f"NVRTC {nvrtc.getVersion()} does not know sm_{request.param}")
    return request.param


@pytest.mark.parametrize("source", SOURCES)
def test_kernels_compile_and_do_not_spill(source: str, architecture: int) -> None:
    kernels = usage_of((KERNELS / source).read_text(), source, architecture)
    assert Path(source).stem in kernels
    for name, usage in kernels.items():
        assert usage.spilled_bytes == 0, f"{name}: {usage}"
        assert usage.shared_bytes <= 48 << 10, f"{name}: {usage}"


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
    with pytest.raises(pytest.fail.Exception, match="broken.cu does not compile"):
        usage_of("__global__ void broken( {}", "broken.cu", architecture)
