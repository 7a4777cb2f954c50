"""The op bank's kernels as PTX: compiled by NVRTC as the launcher does, run on the host."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ddas_gpu.ops import backends
from ddas_gpu.ops.cuda import OPTIONS
from harness.host_kernels import KERNELS, HostKernels
from harness.ptx.translate import HEADER, translate

NAMES = tuple(sorted(path.stem for path in KERNELS.glob("*.cu")))


@cache
def ptx_of(name: str, architecture: int) -> str:
    """Return the PTX of kernels/`name`.cu with the options of the launcher."""
    from cupy.cuda import nvrtc

    version = f"-DSOURCES_{backends.kernel_digest('.cu', '.cuh', '.h')}"
    target = f"--gpu-architecture=compute_{architecture}"
    text = (KERNELS / f"{name}.cu").read_text("utf-8")
    program = nvrtc.createProgram(text, f"{name}.cu", (), ())
    nvrtc.compileProgram(program, (*OPTIONS, version, f"-I{KERNELS}", target))
    ptx = nvrtc.getPTX(program)
    return ptx if isinstance(ptx, str) else ptx.decode()


def ptx_kernels(texts: Mapping[str, str], order: str = "forward", seed: int = 0) -> HostKernels:
    """PTX texts by name, to launch on the host; every access to memory is checked."""
    header = Path(__file__).with_name(HEADER).read_text()
    modules = {f"{name}.cu": translate(text, f"{name}.ptx") for name, text in texts.items()}
    return HostKernels({HEADER: header, **modules}, order=order, racecheck=True, seed=seed)


def bank_ptx(architecture: int, order: str = "forward") -> HostKernels:
    """The kernels of the op bank."""
    return ptx_kernels({name: ptx_of(name, architecture) for name in NAMES}, order)
