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

# A letter from the library: what the parameter is called, and which numpy kinds may be passed.
KINDS = {"p": ("pointer", "ui"), "i": ("integer", "uib"), "f": ("float", "f"), "s": ("struct", "V")}


class KernelError(RuntimeError):
    """A kernel did what it must not do on a GPU."""


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
        order: in which the threads of a block, and the blocks, take turns: "forward", "reverse" or
            "shuffled". A missing barrier gives wrong results in some of them.
        racecheck: check every access to memory. Arrays that the kernels may touch must then be
            uploaded or watched.
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
        self._alive: list[np.ndarray] = []

    def upload(self, array: np.ndarray) -> int:
        """Copy an array to where kernels can read it, until `synchronize`; returns the address."""
        copy = np.array(array, order="C")
        self.watch(copy)
        return copy.ctypes.data

    def watch(self, *arrays: np.ndarray) -> None:
        """Let kernels touch the memory of these arrays, until `synchronize`."""
        for array in arrays:
            low, high = np.lib.array_utils.byte_bounds(array)
            self._alive.append(array)
            if array.size:
                self._library.watch_memory(ctypes.c_void_p(low), ctypes.c_size_t(high - low))

    def synchronize(self) -> None:
        """Let go of all uploaded and watched arrays."""
        self._library.forget_memory()
        self._alive.clear()

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
        values = [ctypes.create_string_buffer(value.tobytes()) for value in args]
        failure = self._library.launch_kernel(
            index,
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(*block),
            (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values)),
            self._order,
            ctypes.c_uint(self._seed),
        )
        if failure is not None:
            raise KernelError(f"{name}: {failure.decode()}{self._guilty_line()}")

    def _check_arguments(self, name: str, kernel: _Kernel, args: tuple[np.generic, ...]) -> None:
        parameters = self._parameters[name]
        if len(args) != len(parameters):
            raise TypeError(
                f"{name} takes {len(parameters)} arguments ({', '.join(parameters)}), not {len(args)}"
            )
        for i, (value, parameter) in enumerate(zip(args, parameters, strict=True)):
            what, accepted = KINDS[chr(kernel.kinds[i])]
            size = kernel.sizes[i]
            if not isinstance(value, np.generic):
                raise TypeError(f"{name}: {parameter!r} takes a numpy scalar, not {value!r}")
            if value.dtype.kind not in accepted or value.dtype.itemsize != size:
                raise TypeError(
                    f"{name}: {parameter!r} is a {what} of {size} bytes, not {value.dtype}({value})"
                )

    def _guilty_line(self) -> str:
        address = self._library.guilty_instruction()
        if not address or not shutil.which("addr2line"):
            return ""
        # The address is the one after the call of the check.
        command = ["addr2line", "-e", str(self._path), hex(address - 1)]
        place = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return f" ({Path(place.split()[0]).name})"


def _check_shape(
    name: str, grid: tuple[int, int, int], block: tuple[int, int, int], most_threads: int
) -> None:
    limits = {"grid": (grid, (2**31 - 1, 65535, 65535)), "block": (block, (1024, 1024, 64))}
    for what, (shape, limit) in limits.items():
        if len(shape) != 3 or not all(1 <= n <= m for n, m in zip(shape, limit, strict=True)):
            raise ValueError(f"{name}: {what} {shape} is not within 1..{limit}")
    if np.prod(block) > most_threads:
        raise ValueError(f"{name}: block {block} has more than {most_threads} threads")
