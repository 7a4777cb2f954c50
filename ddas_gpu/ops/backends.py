"""Which back end runs the ops on which device, decided once per process."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from ddas_gpu.ops import native

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
        native.library()
    except native.NoCompiler as problem:
        return f"its CPU kernels cannot be built: {problem}"
    return None


def forget() -> None:
    """Decide anew, and say so anew; for tests."""
    best_on.cache_clear()
    _told.clear()
