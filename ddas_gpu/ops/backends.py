"""Which back end runs where, and the one of the CPU.

The kernels run on the CPU (`kernels/cpu.cpp`, built by the machine's own C++ compiler on first use)
and on GPUs (`cuda`); where neither can run, torch does the same with Kornia (`fallback`).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from ddas_gpu.files import write_atomically
from ddas_gpu.ops.records import DEFINITIONS, Chains, Inputs, Records

BACKENDS = ("auto", "cuda", "cpu", "kornia")

_told: set[str] = set()  # devices whose reason has been said


class Choice(NamedTuple):
    """The fastest back end on a device."""

    backend: str
    reason: str | None  # why it is not the kernels, and what to do about it


def choose_backend(backend: str, place: str) -> str:
    """Return the back end for images on `place`, "cpu" or "cuda"."""
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; there are: {', '.join(BACKENDS)}")
    if backend == "auto":
        tell(place, lambda reason: warnings.warn(reason, RuntimeWarning, stacklevel=5))
        return best_on(place).backend
    if backend in ("cpu", "cuda") and backend != place:
        raise ValueError(f"backend {backend!r} cannot reach images on {place!r}: move them first")
    return backend


@lru_cache(maxsize=2)
def best_on(place: str) -> Choice:
    """Return the kernels if they can run on `place`, else torch, which is slower."""
    problem = cuda_problem() if place == "cuda" else cpu_problem()
    if problem is None:
        return Choice(place, None)
    where = "the GPU" if place == "cuda" else "the CPU"
    reason = f"ddas_gpu runs its ops with PyTorch on {where}, which is slower, because {problem}"
    return Choice("kornia", reason)


def tell(place: str, say: Callable[[str], None]) -> None:
    """Say, once per process, why the kernels cannot run on `place`, if they cannot."""
    reason = best_on(place).reason
    if reason is not None and place not in _told:
        _told.add(place)
        say(reason)


def cuda_problem() -> str | None:
    """Return why CuPy cannot run the kernels, and what to install; None if it can."""
    try:
        import cupy
    except ImportError as error:
        return f"CuPy cannot be imported ({error}): pip install 'ddas_gpu[{_extra()}]'"
    if cupy.is_available():
        return None
    return f"CuPy finds no GPU; it must fit the driver: pip install 'ddas_gpu[{_extra()}]'"


def _extra() -> str:
    """Return the extra for the CUDA version of torch."""
    torch = sys.modules.get("torch")
    version = getattr(torch.version, "cuda", None) if torch else None
    return "cuda12" if version and version.startswith("12.") else "cuda13"


def cpu_problem() -> str | None:
    """Return why the CPU target cannot be built; None if it can."""
    try:
        library()
    except NoCompiler as problem:
        return f"its CPU kernels cannot be built: {problem}"
    return None


def forget() -> None:
    """Decide anew, and say so anew; for tests."""
    best_on.cache_clear()
    _told.clear()


# --- the CPU target -------------------------------------------------------------------------------

# No contraction: a fused multiply-add rounds once where Pillow rounds twice.
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-fPIC", "-shared", "-pthread")

NO_MEMORY = "too little memory for the spare copies of the images"

_threads = 0  # 0: as many as `cores`


class NoCompiler(RuntimeError):
    """The CPU target cannot be built here."""


def set_num_threads(threads: int) -> None:
    """Set the number of threads of the CPU target; the default is `cores`."""
    global _threads
    if not isinstance(threads, int) or threads < 1:
        raise ValueError(f"the number of threads must be 1 or more, not {threads!r}")
    _threads = threads


def get_num_threads() -> int:
    return _threads or cores()


def cores() -> int:
    """Return this process's share of the cores: torchrun's ranks on one machine divide them."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1") if "TORCHELASTIC_RUN_ID" in os.environ else "1"
    return max(1, len(os.sched_getaffinity(0)) // int(ranks))


def run(pictures: Records, chains: Chains, source: int, target: int) -> None:
    """Run the chain of every picture (records.PICTURE) between the addresses of two batches."""
    failed = library().ddas_augment(
        pictures.address,
        chains.shares.address,
        chains.tasks.address,
        source,
        target,
        len(pictures),
        get_num_threads(),
    )
    if failed:
        raise MemoryError(NO_MEMORY)


def run_inputs(pictures: Records, chains: Chains, source: int, inputs: Inputs) -> None:
    """Run the chain of every picture, and write the input of a model."""
    failed = library().ddas_inputs(
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
    if failed:
        raise MemoryError(NO_MEMORY)


def kernel_folder() -> Path:
    """Return kernels/ of the checkout, or ddas_gpu/kernels/ of the wheel."""
    return Path(str(files("ddas_gpu.kernels")))


def kernel_digest(*suffixes: str) -> str:
    """Return a hash of all kernels with these suffixes, for the keys of compile caches."""
    key = hashlib.sha256()
    for source in sorted(kernel_folder().iterdir()):
        if source.suffix in suffixes:
            key.update(source.name.encode() + b"\0" + source.read_bytes())
    return key.hexdigest()[:20]


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """Return the compiled target, or raise NoCompiler if there is none and it cannot be built."""
    path = build()
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise NoCompiler(f"{path} cannot be loaded: {error}") from error
    pointer = ctypes.c_void_p
    loaded.ddas_augment.argtypes = (*(5 * [pointer]), ctypes.c_int64, ctypes.c_int)
    loaded.ddas_augment.restype = ctypes.c_int
    numbers = (*(4 * [ctypes.c_int]), ctypes.c_int64, ctypes.c_int)
    loaded.ddas_inputs.argtypes = (*(7 * [pointer]), *numbers)
    loaded.ddas_inputs.restype = ctypes.c_int
    return loaded


def build() -> Path:
    """Return the shared library in the cache; compile it first if it is missing or damaged.

    Safe when many processes start at once: each compiles to its own file and renames it. A library
    in the cache needs no compiler.
    """
    name = os.environ.get("CXX") or "c++"
    parts = (FLAGS, DEFINITIONS, name, _cpu(), kernel_digest(".cpp", ".h"))
    key = hashlib.sha256(repr(parts).encode())
    target = cache_folder() / f"cpu-{key.hexdigest()[:20]}.so"
    if not _is_whole(target):
        compiler = shutil.which(name)
        if compiler is None:
            raise NoCompiler(f"the C++ compiler {name!r} was not found")
        built = _compiled(compiler)
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _refuse_foreign(target.parent)
            # Loaders skip what comes after the sections of a library.
            write_atomically(target, built + hashlib.sha256(built).digest())
        except OSError as error:
            raise NoCompiler(f"the cache {target.parent} cannot be written: {error}") from error
    return target


def _is_whole(target: Path) -> bool:
    """Return whether a library is there, to be trusted, and not damaged.

    Loading a truncated library ends the process.
    """
    try:
        _refuse_foreign(target.parent)
        _refuse_foreign(target)
        content = target.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-32]).digest() == content[-32:]


def _refuse_foreign(path: Path) -> None:
    """Raise a ValueError if another user could have written `path`: its code would run here."""
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise ValueError(
            f"the kernels' cache {path} can be written by other users, and what is in it is run: "
            "make it your own with mode 700, or set DDAS_CACHE to another folder"
        )


def _compiled(compiler: str) -> bytes:
    """Return the content of the shared library."""
    with tempfile.TemporaryDirectory() as work:
        built = Path(work, "cpu.so")
        _compile(compiler, str(kernel_folder() / "cpu.cpp"), built)
        return built.read_bytes()


def _compile(compiler: str, source: str, target: Path) -> None:
    command = [compiler, *FLAGS, *DEFINITIONS, "-o", str(target), source]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise NoCompiler(f"{' '.join(command)} failed:\n{result.stderr}")


def cache_folder() -> Path:
    """Return $DDAS_CACHE, else ddas_gpu in the user's cache folder."""
    if os.environ.get("DDAS_CACHE"):
        return Path(os.environ["DDAS_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ddas_gpu"


def _cpu() -> str:
    """Return what -march=native depends on: different machines may share a cache."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
