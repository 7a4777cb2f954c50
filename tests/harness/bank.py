"""The op bank of ddas_gpu with its GPU launcher and CUDA sources, but on the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

from ddas_gpu.ops import native
from ddas_gpu.ops.cuda import CudaTarget
from ddas_gpu.ops.records import DEFINITIONS, Chains, Records
from harness.host_kernels import KERNELS, HostKernels


def bank_kernels(
    replaced: Mapping[str, str] | None = None,
    order: str = "forward",
    racecheck: bool = False,
    only: str = "*",
) -> HostKernels:
    """kernels/`only`.cu for the host; `replaced` has other texts for some files of kernels/."""
    sources = {path.name: path.read_text() for path in sorted(KERNELS.glob(f"{only}.cu"))}
    defines = dict(option.removeprefix("-D").split("=") for option in DEFINITIONS)
    return HostKernels({**sources, **(replaced or {})}, defines, order, racecheck)


@contextmanager
def bank_on(kernels: HostKernels) -> Iterator[None]:
    """Within, `backend="cpu"` goes through the GPU launcher to these kernels."""
    target = CudaTarget(kernels)

    def run(pictures: Records, chains: Chains, sources: int, targets: int) -> None:
        # Each image on its own, so that reaching into its neighbour in the batch is out of bounds.
        ranges = []
        for picture in pictures.array:
            height, width = int(picture["height"]), int(picture["width"])
            behind_last_row = (height - 1) * int(picture["source_pitch"]) + 3 * width
            ranges.append((sources + int(picture["source"]), behind_last_row))
            ranges.append((targets + int(picture["target"]), 3 * height * width))
        kernels.watch(*ranges)
        target.run(pictures, chains, sources, targets)

    with mock.patch.object(native, "run", run):
        yield
