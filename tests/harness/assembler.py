"""What NVRTC's assembler says of the kernels; it needs no GPU."""

from __future__ import annotations

import re
from typing import NamedTuple

from ddas_gpu.ops.cuda import OPTIONS
from harness.host_kernels import KERNELS

ARCHITECTURES = (75, 80, 90, 100, 120)

# What the assembler says of each kernel, given -v.
USAGE = re.compile(
    r"Function properties for (?P<name>\w+)\n"
    r".*?(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads\n"
    r".*?Used (?P<registers>\d+) registers(?:.*? (?P<shared>\d+) bytes smem)?"
)


class DoesNotCompile(Exception):
    """NVRTC refuses a source."""


class Usage(NamedTuple):
    """What a thread, and of shared memory a block, of a kernel takes up."""

    registers: int
    shared_bytes: int
    spilled_bytes: int


def usage_of(text: str, name: str, architecture: int) -> dict[str, Usage]:
    """Compile to machine code; what each kernel in it uses."""
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(text, name, (), ())
    target = f"--gpu-architecture=sm_{architecture}"
    try:
        nvrtc.compileProgram(program, (*OPTIONS, f"-I{KERNELS}", target, "--ptxas-options=-v"))
    except nvrtc.NVRTCError as error:
        log = nvrtc.getProgramLog(program)
        raise DoesNotCompile(f"{name} does not compile:\n{log}") from error
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
