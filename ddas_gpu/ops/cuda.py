"""The GPU target: kernels/*.cu, compiled by CuPy for the device of the images.

`CudaTarget` decides what to launch. It allocates and launches through the protocol `Kernels`, so
that the tests can run the unmodified kernels on a machine without a GPU.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ddas_gpu.ops import backends
from ddas_gpu.ops.declare import PRIMITIVES
from ddas_gpu.ops.records import DEFINITIONS, TASK, Chains, Inputs, Records

if TYPE_CHECKING:
    from ddas_gpu.ops.arrays import Batch

# No contraction: a fused multiply-add rounds once where Pillow rounds twice.
OPTIONS = ("--std=c++17", "--fmad=false", *DEFINITIONS)

BLOCK = (32, 16, 1)  # BLOCK_THREADS in blocks.cuh

# A batch that applies the same one of these ops to every image has a kernel of its own.
OWN_KERNELS = {
    PRIMITIVES[name.upper()].code: name for name in ("solarize", "posterize", "equalize")
}
ROWS_PER_BLOCK = {"solarize": 64, "posterize": 64}  # the other kernels use one block per image


class Kernels(Protocol):
    """Memory and launches of a device. Memory is valid until the next launch has run."""

    def allocate(self, size: int) -> int:
        """Return the address of `size` bytes."""
        ...

    def upload(self, array: np.ndarray) -> int:
        """Return the address of a copy of the array."""
        ...

    def launch(
        self, name: str, grid: tuple[int, int, int], block: tuple[int, int, int], args: tuple
    ) -> None:
        """Start the kernel `name` of kernels/`name`.cu."""


class CudaTarget:
    """Runs pictures and their chains with one upload and one launch."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels

    def run(self, pictures: Records, chains: Chains, source: int, target: int) -> None:
        """Run the chain of every picture (records.PICTURE) between two addresses."""
        if len(pictures) == 0:
            return
        name = kernel_for(chains)
        rows = int(pictures.array["height"].max())
        blocks_per_image = -(-rows // ROWS_PER_BLOCK.get(name, rows))
        records = self._upload(pictures, chains.shares, chains.tasks)
        needs_scratch = name == "augment_parts" or chains.shares.array[:, 1].max() > 1
        scratches = self._scratch(pictures) if needs_scratch else 0
        args = (*records, source, target, scratches)
        grid = (len(pictures), blocks_per_image, 1)
        self.kernels.launch(name, grid, BLOCK, tuple(map(np.uint64, args)))

    def run_inputs(self, pictures: Records, chains: Chains, source: int, inputs: Inputs) -> None:
        """Run the chain of every picture, and write the input of a model."""
        if len(pictures) == 0:
            return
        parts = has_parts(chains)
        *records, holes, table = self._upload(
            pictures, chains.shares, chains.tasks, inputs.holes, inputs.table
        )
        stages = int(chains.shares.array[:, 1].max())
        targets = self._scratch(pictures) if stages else 0
        scratches = self._scratch(pictures) if stages > 1 or parts else 0
        args = (*records, source, targets, scratches, holes, table, inputs.out)
        self.kernels.launch(
            "inputs_parts" if parts else "inputs",
            (len(pictures), 1, 1),
            BLOCK,
            (*map(np.uint64, args), *map(np.int32, inputs.numbers)),
        )

    def _upload(self, pictures: Records, *others: Records) -> list[int]:
        """Upload records in one copy and return their addresses."""
        # The pictures first: only they need an alignment of 8 bytes.
        parts = [np.ravel(part.array).view(np.uint8) for part in (pictures, *others)]
        begins = np.cumsum([0, *(len(part) for part in parts[:-1])])
        return (self.kernels.upload(np.concatenate(parts)) + begins).tolist()

    def _scratch(self, pictures: Records) -> int:
        """Allocate scratch memory of the size of the target: passes alternate between the two."""
        last = pictures.array[-1]
        return self.kernels.allocate(
            int(last["scratch"]) + 3 * int(last["height"]) * int(last["width"])
        )


def has_parts(chains: Chains) -> bool:
    """Return whether some tasks are on rectangles."""
    return bool(chains.tasks.array.ravel().view(TASK)["region"][:, 2].any())


def kernel_for(chains: Chains) -> str:
    """Return the name of the kernel for this batch."""
    if has_parts(chains):
        return "augment_parts"
    tasks, counts = chains.tasks.array.ravel().view(TASK), chains.shares.array[:, 1]
    if (counts == 1).all() and (tasks["primitive"] == tasks["primitive"][0]).all():
        return OWN_KERNELS.get(int(tasks["primitive"][0]), "augment")
    return "augment"


class DeviceError(OSError):
    """The GPU cannot run the kernels; the message says what to do."""


def run(pictures: Records, chains: Chains, source: Batch, target: Batch) -> None:
    """Run on the device of the images, on the current stream of their library."""
    with target_of(source) as device:
        device.run(pictures, chains, source.address, target.address)


def run_inputs(pictures: Records, chains: Chains, source: Batch, inputs: Inputs) -> None:
    """Run, and write the input of a model, where `run` does."""
    with target_of(source) as device:
        device.run_inputs(pictures, chains, source.address, inputs)


@contextmanager
def target_of(source: Batch) -> Iterator[CudaTarget]:
    """Enter the device of the images and the current stream of their library."""
    import cupy

    device = source.device[1]
    from_torch = source.library == "torch"
    stream = _torch_stream(device) if from_torch else cupy.cuda.get_current_stream(device)
    try:
        with cupy.cuda.Device(device), stream:
            yield CudaTarget(CupyKernels(stream))
    except MemoryError as error:
        raise DeviceError(
            f"GPU {device} is out of memory with a batch of {len(source)} images: "
            "use a smaller --batch-size or, in a search, a smaller --memory"
        ) from error


def _torch_stream(device: int) -> Any:
    """Return torch's current stream for CuPy."""
    import cupy
    import torch

    stream = torch.cuda.current_stream(device)
    # CuPy 14 deprecates ExternalStream; older versions of CuPy and torch have no stream protocol.
    if hasattr(cupy.cuda.Stream, "from_external") and hasattr(stream, "__cuda_stream__"):
        return cupy.cuda.Stream.from_external(stream)
    return cupy.cuda.ExternalStream(stream.cuda_stream, device)


class PinnedMemory:
    """Holds the host memory of asynchronous copies until they have ended, for all threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._copies: deque[tuple[Any, Any]] = deque()  # (event, memory), oldest first

    def __len__(self) -> int:
        return len(self._copies)

    def hold(self, copied: Any, memory: Any) -> None:
        """Hold `memory` until the event `copied`; release what is no longer needed."""
        with self._lock:
            while self._copies and self._copies[0][0].done:
                self._copies.popleft()
            self._copies.append((copied, memory))


PINNED = PinnedMemory()


class CupyKernels:
    """A CUDA device through CuPy. Nothing here waits for the device."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        # CuPy's pool reuses memory in stream order, so it may be released after the launch.
        self.held: list[Any] = []

    def allocate(self, size: int) -> int:
        import cupy

        self.held.append(cupy.cuda.alloc(size))
        return self.held[-1].ptr

    def upload(self, array: np.ndarray) -> int:
        import cupy

        pinned = cupy.cuda.alloc_pinned_memory(array.nbytes)
        np.frombuffer(pinned, np.uint8, array.nbytes)[:] = array.view(np.uint8)
        address = self.allocate(array.nbytes)
        self.held[-1].copy_from_host_async(ctypes.c_void_p(pinned.ptr), array.nbytes, self.stream)
        copied = cupy.cuda.Event(disable_timing=True)
        copied.record(self.stream)
        PINNED.hold(copied, pinned)
        return address

    def launch(
        self, name: str, grid: tuple[int, int, int], block: tuple[int, int, int], args: tuple
    ) -> None:
        function(name)(grid, block, args)
        self.held.clear()


def function(name: str) -> Any:
    """Return the kernel `name`; NVRTC compiles it when it is first used on a device."""
    import cupy

    try:
        return module(name).get_function(name)
    except (cupy.cuda.compiler.CompileException, RuntimeError) as error:
        # A RuntimeError: CuPy finds no NVRTC, no CUDA headers, or a driver that is too old.
        log = " ".join(str(error).split())[:300]
        raise DeviceError(
            f"CuPy cannot compile kernels/{name}.cu; it, NVRTC and the CUDA headers must fit the "
            f"driver, as installed by pip install 'ddas_gpu[cuda12]' or [cuda13]: {log}"
        ) from error


@cache
def module(name: str) -> Any:
    """Return kernels/`name`.cu as a CuPy module."""
    import cupy

    folder = backends.kernel_folder()
    # CuPy's cache key has the text of the .cu file and the options, but not the headers.
    version = f"-DSOURCES_{backends.kernel_digest('.cu', '.cuh', '.h')}"
    code = (folder / f"{name}.cu").read_text("utf-8")
    return cupy.RawModule(code=code, options=(*OPTIONS, version, f"-I{folder}"))
