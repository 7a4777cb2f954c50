"""Every kernel compiles: for this CPU, and for the GPU that is there or for the usual ones."""

from __future__ import annotations

import time
from importlib import import_module

from ddas_gpu.doctor.checks import CannotCheck, CheckFailed, Finding, check
from ddas_gpu.doctor.machine import Machine, advice
from ddas_gpu.ops import backends, cuda

ARCHITECTURES = (75, 80, 90, 100, 120)  # where there is no device to compile for


@check("kernels for the CPU")
def cpu_kernels(machine: Machine) -> Finding:
    start = time.perf_counter()
    try:
        built = backends.build()
        backends.library()
    except backends.NoCompiler as error:
        raise CannotCheck(f"the kernels cannot be built for this CPU: {error}") from error
    seconds = time.perf_counter() - start
    text = f"ready after {seconds:.1f} s, {backends.get_num_threads()} threads"
    return Finding(text, {"file": built.name, "threads": backends.get_num_threads()})


@check("kernels for GPUs")
def gpu_kernels(machine: Machine) -> Finding:
    return for_architectures() if machine.no_gpu else for_this_device()


def names() -> list[str]:
    """Return the names of all CUDA kernels."""
    return sorted(path.stem for path in backends.kernel_folder().glob("*.cu"))


def for_this_device() -> Finding:
    """Compile as the launcher does; report the resources of each kernel."""
    usage = {}
    for name in names():
        start = time.perf_counter()
        function = cuda.function(name)
        usage[name] = {
            "registers": function.num_regs,
            "spilled bytes": function.local_size_bytes,
            "shared bytes": function.shared_size_bytes,
            "seconds": round(time.perf_counter() - start, 3),
        }
    most = max(one["registers"] for one in usage.values())
    spilled = sum(one["spilled bytes"] for one in usage.values())
    text = f"{len(usage)} kernels, at most {most} registers per thread, {spilled} bytes spilled"
    return Finding(text, {"kernels": usage})


def for_architectures() -> Finding:
    """Compile with NVRTC, which needs no device."""
    try:
        nvrtc = import_module("cupy.cuda").nvrtc
        known = nvrtc.getSupportedArchs()
    except (ImportError, RuntimeError) as error:
        raise CannotCheck(f"NVRTC is missing, which only GPUs need: {advice()}") from error
    architectures = [number for number in ARCHITECTURES if number in known]
    sizes: dict[str, dict[str, int]] = {}
    for name in names():
        text = (backends.kernel_folder() / f"{name}.cu").read_text("utf-8")
        for number in architectures:
            program = nvrtc.createProgram(text, f"{name}.cu", (), ())
            options = (f"-I{backends.kernel_folder()}", f"--gpu-architecture=sm_{number}")
            try:
                nvrtc.compileProgram(program, (*cuda.OPTIONS, *options))
            except nvrtc.NVRTCError as error:
                log = nvrtc.getProgramLog(program)
                raise CheckFailed(f"{name}.cu does not compile for sm_{number}: {log}") from error
            sizes.setdefault(name, {})[f"sm_{number}"] = len(nvrtc.getCUBIN(program))
    listed = ", ".join(map(str, architectures))
    return Finding(f"{len(sizes)} kernels compile for sm_{listed}", {"bytes": sizes})
