"""Compile the kernels with NVRTC, which needs no GPU, and read what it reports."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from ddas_gpu.ops.cuda import OPTIONS
from harness.host_kernels import KERNELS

ARCHITECTURES = (75, 80, 90, 100, 120)

# The assembler's report on a kernel, with -v.
USAGE = re.compile(
    r"Function properties for (?P<name>\w+)\n"
    r".*?(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\n"
    r".*?Used (?P<registers>\d+) registers(?:.*? (?P<shared>\d+) bytes smem)?"
)


class DoesNotCompile(Exception):
    """NVRTC refuses a source."""


class Usage(NamedTuple):
    """Registers and spills per thread, and shared memory per block."""

    registers: int
    shared_bytes: int
    spilled_bytes: int


def skip_unless_known(architecture: int) -> None:
    """Skip a test where NVRTC is missing or does not compile for the architecture."""
    nvrtc = pytest.importorskip("cupy.cuda", reason="needs CuPy").nvrtc
    try:
        supported = nvrtc.getSupportedArchs()
    except RuntimeError as problem:
        pytest.skip(f"NVRTC is not installed: {problem}")
    if architecture not in supported:
        pytest.skip(f"NVRTC {nvrtc.getVersion()} does not know architecture {architecture}")


def _compile(text: str, name: str, *options: str) -> Any:
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(text, name, (), ())
    try:
        nvrtc.compileProgram(program, (*OPTIONS, f"-I{KERNELS}", *options))
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise DoesNotCompile(f"{name} does not compile:\n{log}") from error
    return program


def basic_blocks(text: str, name: str, architecture: int) -> list[list[str]]:
    """Compile to PTX; return the instructions of each basic block."""
    from cupy.cuda import nvrtc

    ptx = nvrtc.getPTX(_compile(text, name, f"--gpu-architecture=compute_{architecture}"))
    lines = (ptx if isinstance(ptx, str) else ptx.decode()).splitlines()
    blocks: list[list[str]] = [[]]
    for line in map(str.strip, lines):
        if line.startswith("$L"):
            blocks.append([])
        elif line.endswith(";") and not line.startswith("."):
            blocks[-1].append(line)
            if " bra " in f" {line.replace(chr(9), ' ')}":
                blocks.append([])
    return blocks


def usage_of(text: str, name: str, architecture: int) -> dict[str, Usage]:
    """Compile to machine code; return the resources of each kernel."""
    from cupy.cuda import nvrtc

    program = _compile(text, name, f"--gpu-architecture=sm_{architecture}", "--ptxas-options=-v")
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
