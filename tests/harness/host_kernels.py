"""Launches kernels on the CPU with the arguments that CuPy would hand to the GPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from harness.build import Declaration, build

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
ORDERS = ("forward", "reverse", "shuffled")
HEADERS = (".h", ".cuh")
POISON = 0xA5

# A letter of the library: the name of the parameter's kind, and the numpy kinds it accepts.
KINDS = {
    "p": ("a pointer", "ui"),
    "i": ("an integer", "uib"),
    "f": ("a float", "f"),
    "s": ("a struct", "V"),
}


class KernelError(RuntimeError):
    """A kernel did something that is invalid on a GPU."""


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kinds", ctypes.c_char_p),
        ("sizes", ctypes.POINTER(ctypes.c_size_t)),
        ("most_threads", ctypes.c_int),
        ("call", ctypes.c_void_p),
    )


class HostKernels:
    """The kernels of some CUDA sources, compiled for the host.

    Args:
        sources: paths of .cu files, or texts by file name. Headers are taken from kernels/ unless
            the texts have one of that name.
        defines: what the compiler is to define.
        order: of the threads in a block, and of the blocks: "forward", "reverse" or "shuffled". A
            missing barrier gives wrong results in some of them.
        racecheck: check every memory access; `watch` sets what the kernels may access.
        seed: for the shuffled order.
    """

    def __init__(
        self,
        sources: Iterable[Path] | Mapping[str, str],
        defines: Mapping[str, int | str] | None = None,
        order: str = "forward",
        racecheck: bool = False,
        seed: int = 0,
    ) -> None:
        if order not in ORDERS:
            raise ValueError(f"unknown order {order!r}; there are: {', '.join(ORDERS)}")
        if not isinstance(sources, Mapping):
            sources = {path.name: path.read_text() for path in map(Path, sources)}
        headers = {p.name: p.read_text() for p in sorted(KERNELS.iterdir()) if p.suffix in HEADERS}
        texts = {**headers, **sources}
        self._path = build(texts, defines or {}, racecheck)
        self._library = ctypes.CDLL(str(self._path))
        self._library.launch_kernel.restype = ctypes.c_char_p
        self._library.guilty_instruction.restype = ctypes.c_void_p
        self._order = ORDERS.index(order)
        self._seed = seed
        self._parameters = {
            declaration.name: declaration.parameters
            for text in sources.values()
            for declaration in Declaration.all_in(text)
        }
        self._kernels: dict[str, tuple[int, _Kernel]] = {}
        for index in range(self._library.count_kernels()):
            kernel = _Kernel()
            self._library.describe_kernel(index, ctypes.byref(kernel))
            self._kernels[kernel.name.decode()] = (index, kernel)
        self._watched: list[tuple[int, int]] = []
        self._held: list[np.ndarray] = []

    def allocate(self, size: int) -> int:
        """Return the address of `size` bytes, valid until the next launch has run."""
        return self.upload(np.full(size, POISON, np.uint8))

    def upload(self, array: np.ndarray) -> int:
        """Return the address of a copy of the array, valid until the next launch has run."""
        self._held.append(np.array(array, order="C"))
        return self._held[-1].ctypes.data

    def watch(self, *memory: np.ndarray | tuple[int, int]) -> None:
        """Set which memory, apart from their own, the kernels may access from now on.

        Each is an array, or an address and a number of bytes. The caller keeps it alive.
        """
        self._watched = [_extent(one) if isinstance(one, np.ndarray) else one for one in memory]

    def launch(
        self,
        name: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: tuple[np.generic, ...],
    ) -> None:
        """Run a kernel to its end.

        Raises:
            TypeError: the arguments do not fit the kernel's parameters.
            ValueError: no such kernel, or a grid or block that a GPU would refuse.
            KernelError: the threads of a block wait at different barriers; with racecheck also a
                race, an access out of bounds, or a read of unwritten shared memory.
        """
        if name not in self._kernels:
            raise ValueError(f"unknown kernel {name!r}; there are: {', '.join(self._kernels)}")
        index, kernel = self._kernels[name]
        _check_shape(name, grid, block, kernel.most_threads)
        self._check_arguments(name, kernel, args)
        self._library.forget_memory()
        for address, size in dict.fromkeys([*self._watched, *map(_extent, self._held)]):
            self._library.watch_memory(ctypes.c_void_p(address), ctypes.c_size_t(size))
        values = [ctypes.create_string_buffer(value.tobytes()) for value in args]
        failure = self._library.launch_kernel(
            index,
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(*block),
            (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values)),
            self._order,
            ctypes.c_uint(self._seed),
        )
        self._held.clear()
        if failure is not None:
            raise KernelError(f"{name}: {failure.decode()}{self._guilty_line()}")

    def bytes_moved(self, kind: str, shared: bool = False) -> int:
        """Bytes the last launch has read, written or changed atomically; racecheck counts them."""
        library = self._library
        library.bytes_moved.restype = ctypes.c_longlong
        return library.bytes_moved(("read", "write", "atomic").index(kind), int(shared))

    def _check_arguments(self, name: str, kernel: _Kernel, args: tuple[np.generic, ...]) -> None:
        parameters = self._parameters[name]
        if len(args) != len(parameters):
            accepted = f"{len(parameters)} arguments ({', '.join(parameters)})"
            raise TypeError(f"{name} takes {accepted}, not {len(args)}")
        for i, (value, parameter) in enumerate(zip(args, parameters, strict=True)):
            what, accepted = KINDS[chr(kernel.kinds[i])]
            size = kernel.sizes[i]
            if not isinstance(value, np.generic):
                raise TypeError(f"{name}: {parameter!r} takes a numpy scalar, not {value!r}")
            if value.dtype.kind not in accepted or value.dtype.itemsize != size:
                got = f"{value.dtype} {value}"
                raise TypeError(f"{name}: {parameter!r} takes {what} of {size} bytes, not {got}")

    def _guilty_line(self) -> str:
        address = self._library.guilty_instruction()
        if not address or not shutil.which("addr2line"):
            return ""
        # The address is the one after the call of the check. Of what was inlined there, the
        # innermost line that is not the harness's.
        command = ["addr2line", "-i", "-e", str(self._path), hex(address - 1)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        places = [Path(line.split()[0]).name for line in answer.splitlines()]
        return f" ({next((p for p in places if 'cuda_on_host' not in p), places[0])})"


def _extent(array: np.ndarray) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, high - low


def _check_shape(
    name: str, grid: tuple[int, int, int], block: tuple[int, int, int], most_threads: int
) -> None:
    limits = {"grid": (grid, (2**31 - 1, 65535, 65535)), "block": (block, (1024, 1024, 64))}
    for what, (shape, limit) in limits.items():
        if len(shape) != 3 or not all(1 <= n <= m for n, m in zip(shape, limit, strict=True)):
            raise ValueError(f"{name}: {what} {shape} is not within 1..{limit}")
    if np.prod(block) > most_threads:
        raise ValueError(f"{name}: block {block} has more than {most_threads} threads")
