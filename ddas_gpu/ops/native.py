"""The CPU target: kernels/cpu.cpp, built by the machine's own C++ compiler on first use."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from ddas_gpu.ops import kernel_sources
from ddas_gpu.ops.records import DEFINITIONS, Chains, Inputs, Records

# No contraction: a fused multiply-add rounds once where Pillow rounds twice.
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-fPIC", "-shared", "-pthread")

_threads = 0  # 0: the number of cores of this process


class NoCompiler(RuntimeError):
    """The CPU target cannot be built here."""


def set_num_threads(threads: int) -> None:
    """Set the number of threads of the CPU target; the default is the cores of this process."""
    global _threads
    if not isinstance(threads, int) or threads < 1:
        raise ValueError(f"the number of threads must be 1 or more, not {threads!r}")
    _threads = threads


def get_num_threads() -> int:
    return _threads or len(os.sched_getaffinity(0))


def run(pictures: Records, chains: Chains, source: int, target: int) -> None:
    """Run the chain of every picture (records.PICTURE) between the addresses of two batches."""
    library().ddas_augment(
        pictures.address,
        chains.shares.address,
        chains.tasks.address,
        source,
        target,
        len(pictures),
        get_num_threads(),
    )


def run_inputs(pictures: Records, chains: Chains, source: int, inputs: Inputs) -> None:
    """Run the chain of every picture, and write the input of a model."""
    library().ddas_inputs(
        pictures.address,
        chains.shares.address,
        chains.tasks.address,
        source,
        inputs.holes.address,
        inputs.table.address,
        inputs.out,
        *inputs.numbers,
        len(pictures),
        get_num_threads(),
    )


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the compiled target, or raise NoCompiler if it cannot be built."""
    loaded = ctypes.CDLL(str(build()))
    pointer = ctypes.c_void_p
    loaded.ddas_augment.argtypes = (*(5 * [pointer]), ctypes.c_int64, ctypes.c_int)
    loaded.ddas_augment.restype = None
    numbers = (*(4 * [ctypes.c_int]), ctypes.c_int64, ctypes.c_int)
    loaded.ddas_inputs.argtypes = (*(7 * [pointer]), *numbers)
    loaded.ddas_inputs.restype = None
    return loaded


def build() -> Path:
    """Return the shared library in the cache; compile it first if it is missing.

    Safe when many processes start at once: each compiles to its own file and renames it.
    """
    wanted = os.environ.get("CXX") or "c++"
    compiler = shutil.which(wanted)
    if compiler is None:
        raise NoCompiler(f"the C++ compiler {wanted!r} was not found")
    parts = (FLAGS, DEFINITIONS, compiler, _cpu(), kernel_sources.digest(".cpp", ".h"))
    key = hashlib.sha256(repr(parts).encode())
    target = cache_folder() / f"cpu-{key.hexdigest()[:20]}.so"
    if not target.exists():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as work:
                built = Path(work, target.name)
                _compile(compiler, str(kernel_sources.folder() / "cpu.cpp"), built)
                os.replace(built, target)
        except OSError as error:
            raise NoCompiler(f"the cache {target.parent} cannot be written: {error}") from error
    return target


def _compile(compiler: str, source: str, target: Path) -> None:
    command = [compiler, *FLAGS, *DEFINITIONS, "-o", str(target), source]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise NoCompiler(f"{' '.join(command)} failed:\n{result.stderr}")


def cache_folder() -> Path:
    """Return $DDAS_CACHE, else ddas_gpu in the user's cache folder."""
    if "DDAS_CACHE" in os.environ:
        return Path(os.environ["DDAS_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddas_gpu"


def _cpu() -> str:
    """Return what -march=native depends on: different machines may share a cache."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
