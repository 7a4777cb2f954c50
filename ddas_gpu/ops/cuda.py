"""The GPU target: kernels/*.cu, compiled by CuPy for the device at hand.

`CudaTarget` decides what to launch. Where memory and launches go is behind the small protocol
`Kernels`, so that the tests can run the unmodified kernels on a machine without a GPU.
"""

from __future__ import annotations

import ctypes
from collections import deque
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ddas_gpu.ops.declare import PRIMITIVES
from ddas_gpu.ops.records import DEFINITIONS, TASK, Chains, Records

if TYPE_CHECKING:
    from ddas_gpu.ops.arrays import Batch

OPTIONS = ("--std=c++17", "--fmad=false", *DEFINITIONS)  # no contraction, as on the CPU

BLOCK = (32, 16, 1)  # BLOCK_THREADS in blocks.cuh

# A batch that applies the same one of these ops to every image has a kernel of its own.
OWN_KERNELS = {
    PRIMITIVES[name.upper()].code: name for name in ("solarize", "posterize", "equalize")
}
ROWS_PER_BLOCK = {"solarize": 64, "posterize": 64}  # the other kernels use one block per image


class Kernels(Protocol):
    """What a target needs of a device. Memory lasts until the next launch has run."""

    def allocate(self, size: int) -> int:
        """The address of `size` bytes."""

    def upload(self, array: np.ndarray) -> int:
        """The address of a copy of the array."""

    def launch(
        self, name: str, grid: tuple[int, int, int], block: tuple[int, int, int], args: tuple
    ) -> None:
        """Start the kernel `name` of kernels/`name`.cu."""


class CudaTarget:
    """Turns pictures and their chains into one upload and one launch."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels

    def run(self, pictures: Records, chains: Chains, sources: int, targets: int) -> None:
        """Take every picture (marshal.PICTURE) through its chain, between these addresses."""
        if len(pictures) == 0:
            return
        name = kernel_for(chains)
        rows = int(pictures.array["height"].max())
        blocks_an_image = -(-rows // ROWS_PER_BLOCK.get(name, rows))
        # The pictures first: of these records they alone need the alignment of 8 bytes.
        records = [
            np.ravel(part.array).view(np.uint8) for part in (pictures, chains.shares, chains.tasks)
        ]
        address = self.kernels.upload(np.concatenate(records))
        places = (address, address + len(records[0]), address + len(records[0]) + len(records[1]))
        needs_scratch = name == "augment_parts" or chains.shares.array[:, 1].max() > 1
        scratches = self._scratch(pictures) if needs_scratch else 0
        args = (*places, sources, targets, scratches)
        grid = (len(pictures), blocks_an_image, 1)
        self.kernels.launch(name, grid, BLOCK, tuple(map(np.uint64, args)))

    def _scratch(self, pictures: Records) -> int:
        """Chains alternate between the target and as much scratch memory again."""
        last = pictures.array[-1]
        return self.kernels.allocate(
            int(last["scratch"]) + 3 * int(last["height"]) * int(last["width"])
        )


def kernel_for(chains: Chains) -> str:
    """The name of the kernel that serves this batch."""
    tasks, counts = chains.tasks.array.ravel().view(TASK), chains.shares.array[:, 1]
    if tasks["region"][:, 2].any():
        return "augment_parts"
    if (counts == 1).all() and (tasks["primitive"] == tasks["primitive"][0]).all():
        return OWN_KERNELS.get(int(tasks["primitive"][0]), "augment")
    return "augment"


def run(pictures: Records, chains: Chains, source: Batch, target: Batch) -> None:
    """Run on the device of the images, on the current stream of the library they came from."""
    import cupy

    device = source.device[1]
    if source.library == "torch":
        import torch

        pointer = torch.cuda.current_stream(device).cuda_stream
        stream = cupy.cuda.ExternalStream(pointer, device)
    else:
        stream = cupy.cuda.get_current_stream(device)
    with cupy.cuda.Device(device), stream:
        CudaTarget(CupyKernels(stream)).run(pictures, chains, source.address, target.address)


# Host memory of copies that may still be under way, with the event that ends each.
_in_flight: deque[tuple[Any, Any]] = deque()


class CupyKernels:
    """A CUDA device through CuPy. Nothing here waits for the device."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        # CuPy's pool hands memory on in stream order, so it is enough to hold it until the launch.
        self.held: list[Any] = []

    def allocate(self, size: int) -> int:
        import cupy

        self.held.append(cupy.cuda.alloc(size))
        return self.held[-1].ptr

    def upload(self, array: np.ndarray) -> int:
        import cupy

        while _in_flight and _in_flight[0][0].done:
            _in_flight.popleft()
        pinned = cupy.cuda.alloc_pinned_memory(array.nbytes)
        np.frombuffer(pinned, np.uint8, array.nbytes)[:] = array.view(np.uint8)
        address = self.allocate(array.nbytes)
        self.held[-1].copy_from_host_async(ctypes.c_void_p(pinned.ptr), array.nbytes, self.stream)
        copied = cupy.cuda.Event(disable_timing=True)
        copied.record(self.stream)
        _in_flight.append((copied, pinned))
        return address

    def launch(
        self, name: str, grid: tuple[int, int, int], block: tuple[int, int, int], args: tuple
    ) -> None:
        module(name).get_function(name)(grid, block, args)
        self.held.clear()


@cache
def module(name: str) -> Any:
    """kernels/`name`.cu as a CuPy module; NVRTC compiles it when a kernel is first asked for."""
    import cupy

    sources = files("ddas_gpu.kernels")
    code = sources.joinpath(f"{name}.cu").read_text("utf-8")
    return cupy.RawModule(code=code, options=(*OPTIONS, f"-I{sources}"))
