"""The interface of the op bank: one op, a policy, or several policies on a batch of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddas_gpu.ops import arrays, cuda, native
from ddas_gpu.ops.arrays import Batch, Images
from ddas_gpu.ops.records import Chains, Request, chains_for, pictures_for, steps_of
from ddas_gpu.ops.table import Argument, find
from ddas_gpu.streams import NOTHING_DRAWN, Draws, draw

if TYPE_CHECKING:
    from ddas_gpu.space import SearchSpace


import sys
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple


def apply_op(
    images: Images,
    op: str,
    argument: Argument = None,
    *,
    backend: str = "auto",
    seed: int = 0,
    out: Images | None = None,
) -> Images:
    """Apply one op with one argument to every image; the bytes are Pillow's.

    images: uint8 (B, H, W, 3) from numpy, torch or CuPy, or a list of (H, W, 3) of any sizes. The
    result has the same type and device. `seed` draws the centre of Cutout.

    >>> images = np.full((1, 2, 2, 3), 200, np.uint8)
    >>> apply_op(images, "Solarize", 128)[0, 0, 0]
    array([55, 55, 55], dtype=uint8)
    """
    declared = find(op)
    argument = declared.check(argument)
    source = arrays.read(images)
    draws = draw(seed, np.arange(len(source)), 1) if declared.centred else NOTHING_DRAWN
    request = Request.of_one(op, argument, draws)
    out = arrays.empty_like(images) if out is None else out
    _run(source, out, request, backend)
    return out


def augment(
    images: Images,
    policy: Sequence[int] | np.ndarray,
    space: SearchSpace,
    seed: int = 0,
    *,
    samples: Sequence[int] | np.ndarray | None = None,
    backend: str = "auto",
    out: Images | None = None,
) -> Images:
    """Apply a policy, a sequence of candidates of `space`, to every image.

    policy: (N,) candidate indices for the whole batch, or (B, N), a row per image; -1 does nothing.
    Signs and centres are drawn from (seed, sample), where `samples` (B,) are the numbers of the
    images in the data set, by default 0, 1, …
    """
    source = arrays.read(images)
    request = request_of(source, policy, space, seed, samples)
    out = arrays.empty_like(images) if out is None else out
    _run(source, out, request, backend)
    return out


def request_of(
    source: Batch,
    policy: Sequence[int] | np.ndarray,
    space: SearchSpace,
    seed: int,
    samples: Sequence[int] | np.ndarray | None,
) -> Request:
    """Return what `augment` asks for."""
    policies = check_policies(policy, space)
    if policies.ndim == 2 and len(policies) != len(source):
        raise ValueError(f"{len(policies)} policies for {len(source)} images: give one per image")
    draws = draw(seed, check_samples(samples, len(source)), policies.shape[-1])
    return Request(steps_of(space), np.atleast_2d(policies), draws, space.fill)


def versions(
    images: Images,
    policies: Sequence[Sequence[int]] | np.ndarray,
    space: SearchSpace,
    seed: int = 0,
    *,
    samples: Sequence[int] | np.ndarray | None = None,
    backend: str = "auto",
    out: Images | None = None,
) -> Images:
    """Return the batch and its version under each of L policies: (L + 1, B, H, W, 3).

    Step 1 of the search. The kernels read the batch in place: it is not repeated in memory.
    """
    if isinstance(images, (list, tuple)):
        raise TypeError("versions takes one array (B, H, W, 3), not a list of images")
    source = arrays.read(images)
    policies = check_policies(policies, space)
    if policies.ndim != 2:
        raise ValueError(f"policies must have the shape (L, N), not {policies.shape}")
    (count, depth), batch = policies.shape, len(source)
    drawn = draw(seed, check_samples(samples, batch), count * depth)
    draws = Draws(*(_by_version(field, count, depth) for field in drawn))
    nothing = np.full((1, depth), -1, np.intp)
    chosen = np.concatenate([nothing, policies]).repeat(batch, axis=0)
    shape = (count + 1, *images.shape)
    if out is None:
        out = arrays.empty(images, shape)
    elif tuple(out.shape) != shape:
        raise ValueError(f"out must have the shape {shape}, not {tuple(out.shape)}")
    tiled = replace(source, layout=arrays.tiled(source.layout, count + 1))
    flat = out.reshape(((count + 1) * batch, *images.shape[1:]))
    _run(tiled, flat, Request(steps_of(space), chosen, draws, space.fill), backend)
    return out


def _by_version(drawn: np.ndarray, count: int, depth: int) -> np.ndarray:
    """(B, count·depth, …) → ((count + 1)·B, depth, …); the first B rows are the batch itself."""
    batch, rest = len(drawn), drawn.shape[2:]
    drawn = drawn.reshape(batch, count, depth, *rest).swapaxes(0, 1)
    first = np.zeros((1, batch, depth, *rest), drawn.dtype)
    return np.concatenate([first, drawn]).reshape((count + 1) * batch, depth, *rest)


def check_policies(policies: Sequence | np.ndarray, space: SearchSpace) -> np.ndarray:
    """Return policies as an index array, or raise an error that names the first wrong index."""
    policies = np.asarray(policies)
    if policies.ndim not in (1, 2) or (policies.size and policies.dtype.kind not in "iu"):
        raise ValueError(
            "a policy is a row of candidate indices, (N,) or (B, N), "
            f"not {policies.dtype} of shape {policies.shape}"
        )
    wrong = policies[(policies < -1) | (policies >= len(space))]
    if wrong.size:
        raise ValueError(
            f"policy index {wrong[0]} is outside the space: "
            f"0 to {len(space) - 1}, or -1 to do nothing"
        )
    return policies.astype(np.intp)


def check_samples(samples: Sequence[int] | np.ndarray | None, count: int) -> np.ndarray:
    """Return sample numbers as an array; 0, 1, … by default."""
    if samples is None:
        return np.arange(count)
    samples = np.asarray(samples)
    if samples.shape != (count,) or samples.dtype.kind not in "iu":
        raise ValueError(
            f"samples must be {count} whole numbers, one per image, "
            f"not {samples.dtype} of shape {samples.shape}"
        )
    return samples


def _run(source: Batch, out: Images, request: Request, backend: str) -> None:
    chains = chains_for(request, source.sizes, len(source))  # raises if an op is not defined
    if choose_backend(backend, source.device[0]) == "kornia":
        from ddas_gpu.ops import fallback

        fallback.run(source, target_of(source, out), request)
    else:
        run_chains(source, out, chains, backend)


def run_chains(source: Batch, out: Images, chains: Chains, backend: str) -> None:
    """Run the tasks on the kernels, from the source to `out`."""
    target = target_of(source, out)
    pictures = pictures_for(source.layout, target.layout)
    if choose_backend(backend, source.device[0]) == "cpu":
        native.run(pictures, chains, source.address, target.address)
    else:
        cuda.run(pictures, chains, source, target)


def target_of(source: Batch, out: Images) -> Batch:
    """Return where to write, checked against the source."""
    target = arrays.read(out, "out", writable=True)
    arrays.check_target(target, source)
    return target


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
