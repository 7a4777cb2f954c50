"""The interface of the op bank: one op, a policy, or several policies on a batch of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddas_gpu.ops import arrays, backends, cuda
from ddas_gpu.ops.arrays import Batch, Images
from ddas_gpu.ops.records import Chains, Request, chains_for, pictures_for, steps_of
from ddas_gpu.ops.table import Argument, find
from ddas_gpu.streams import NOTHING_DRAWN, Draws, draw, sample_numbers

if TYPE_CHECKING:
    from ddas_gpu.space import SearchSpace


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
    request = space.request(policy, len(source), seed, samples)
    out = arrays.empty_like(images) if out is None else out
    _run(source, out, request, backend)
    return out


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
    policies = space.check_policies(policies)
    if policies.ndim != 2:
        raise ValueError(f"policies must have the shape (L, N), not {policies.shape}")
    (count, depth), batch = policies.shape, len(source)
    drawn = draw(seed, sample_numbers(samples, batch), count * depth)
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


def _run(source: Batch, out: Images, request: Request, backend: str) -> None:
    chains = chains_for(request, source.sizes, len(source))  # raises if an op is not defined
    if backends.choose_backend(backend, source.device[0]) == "kornia":
        from ddas_gpu.ops import fallback

        fallback.run(source, target_of(source, out), request)
    else:
        run_chains(source, out, chains, backend)


def run_chains(source: Batch, out: Images, chains: Chains, backend: str) -> None:
    """Run the tasks on the kernels, from the source to `out`."""
    target = target_of(source, out)
    pictures = pictures_for(source.layout, target.layout)
    if backends.choose_backend(backend, source.device[0]) == "cpu":
        backends.run(pictures, chains, source.address, target.address)
    else:
        cuda.run(pictures, chains, source, target)


def target_of(source: Batch, out: Images) -> Batch:
    """Return where to write, checked against the source."""
    target = arrays.read(out, "out", writable=True)
    arrays.check_target(target, source)
    return target
