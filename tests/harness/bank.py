"""The op bank of ddas_gpu with its GPU launcher and CUDA sources, but on the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest import mock

from ddas_gpu.ops import backends
from ddas_gpu.ops.cuda import CudaTarget
from ddas_gpu.ops.records import DEFINITIONS, Chains, Inputs, Records
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

    def watch(pictures: Records, sources: int, *others: tuple[int, int]) -> None:
        # Each image on its own, so that reaching into its neighbour in the batch is out of bounds.
        ranges = []
        for picture in pictures.array:
            height, width = int(picture["height"]), int(picture["width"])
            behind_last_row = (height - 1) * int(picture["source_pitch"]) + 3 * width
            ranges.append((sources + int(picture["source"]), behind_last_row))
        kernels.watch(*ranges, *others)

    def run(pictures: Records, chains: Chains, sources: int, targets: int) -> None:
        sizes = 3 * pictures.array["height"].astype(int) * pictures.array["width"]
        places = targets + pictures.array["target"]
        watch(pictures, sources, *zip(places.tolist(), sizes.tolist(), strict=True))
        target.run(pictures, chains, sources, targets)

    def run_inputs(pictures: Records, chains: Chains, sources: int, inputs: Inputs) -> None:
        size = 3 * inputs.height * inputs.width * inputs.word_bytes
        watch(pictures, sources, *((inputs.out + i * size, size) for i in range(len(pictures))))
        target.run_inputs(pictures, chains, sources, inputs)

    with (
        mock.patch.object(backends, "run", run),
        mock.patch.object(backends, "run_inputs", run_inputs),
    ):
        yield
