"""Counting the machine instructions of an op on the CPU, which do not depend on the load."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
from peers import argument_of

from ddas_gpu.ops import OPS, backends
from ddas_gpu.ops.records import DEFINITIONS, Request, chains_for
from ddas_gpu.streams import Draws

HERE = Path(__file__).parent
# Scalar code is close to what a GPU thread executes: one pixel or byte at a time.
BUILDS = {"vector": (), "scalar": ("-fno-tree-vectorize", "-fno-tree-slp-vectorize")}


class Counter:
    """Builds benchmarks/one_op.cpp in `folder`, and runs it under valgrind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        flags = [flag for flag in backends.FLAGS if flag not in ("-fPIC", "-shared")]
        if platform.machine() == "x86_64":  # valgrind does not support AVX-512
            flags[flags.index("-march=native")] = "-march=x86-64-v3"
        for build, more in BUILDS.items():
            command = [shutil.which("c++"), *flags, *more, *DEFINITIONS, f"-I{HERE.parent}/kernels"]
            subprocess.run([*command, HERE / "one_op.cpp", "-o", folder / build], check=True)

    def a_pixel(self, name: str, side: int, build: str = "vector") -> float:
        """Return the instructions per pixel of an op on a square image of noise."""
        task = self.folder / f"{name}-{side}"
        middle = Draws(np.zeros((1, 1), bool), np.full((1, 1, 2), 1 << 31, np.uint32))
        request = Request.of_one(name, argument_of(name), middle)
        task.write_bytes(chains_for(request, (side, side), 1).tasks.array.tobytes())
        # Two calls minus one call: without the start of the program, and with warm caches.
        counts = [self._count(build, side, task, calls) for calls in (1, 2)]
        return (counts[1] - counts[0]) / side**2

    def _count(self, build: str, side: int, task: Path, calls: int) -> int:
        valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        command = [*valgrind, self.folder / build, str(side), task, str(calls)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        return int(re.search(r"Collected : (\d+)", output)[1])


def missing() -> str | None:
    """Return which tools for counting are missing."""
    absent = [name for name in ("valgrind", "c++") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not found" if absent else None


def looks_first(name: str) -> bool:
    """Return whether the op reads the whole image before it writes a pixel."""
    return OPS[name].primitive.name in ("AUTOCONTRAST", "EQUALIZE", "CONTRAST")
