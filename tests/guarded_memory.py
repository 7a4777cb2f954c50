"""Run every op on images that begin or end at a protected page.

A separate program, because an access out of bounds crashes it: `python guarded_memory.py`.
"""

import ctypes
import faulthandler
import mmap

import numpy as np
import torch

from ddas_gpu.ops import OPS, PixelScale, apply_op, set_num_threads
from ddas_gpu.ops.inputs import inputs_of
from ddas_gpu.pipelines.transform import Output

PAGES = 4 * mmap.PAGESIZE
SIZES = [*((n, n) for n in range(1, 34)), (1, 40), (40, 1), (2, 33), (33, 5), (17, 64), (64, 63)]


def guarded() -> np.ndarray:
    """Return memory between two pages that crash the process on any access."""
    block = mmap.mmap(-1, PAGES + 2 * mmap.PAGESIZE)
    whole = np.frombuffer(block, np.uint8)
    for page in (whole[: mmap.PAGESIZE], whole[-mmap.PAGESIZE :]):
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        assert protect(ctypes.c_void_p(page.ctypes.data), mmap.PAGESIZE, 0) == 0
    return whole[mmap.PAGESIZE : -mmap.PAGESIZE]


def main() -> None:
    faulthandler.enable()
    set_num_threads(1)
    rng = np.random.default_rng(0)
    memory = [guarded(), guarded()]
    for op in OPS.values():
        arguments = {None if op.law is None else op.law(m, PixelScale()) for m in (0, 3, 10, 30)}
        for height, width in SIZES:
            if op.square and height != width:
                continue
            size = 3 * height * width
            for part in (slice(PAGES - size, PAGES), slice(0, size)):  # at the end, at the start
                images, out = (block[part].reshape(1, height, width, 3) for block in memory)
                images[:] = rng.integers(0, 256, images.shape)
                for argument in arguments:
                    for signed in {argument, -argument} if op.signed else {argument}:
                        print(op.name, signed, (height, width), flush=True)  # the op that crashed
                        apply_op(images, op.name, signed, backend="cpu", out=out)
    check_inputs(memory[0])


def check_inputs(memory: np.ndarray) -> None:
    """Read images up to their last byte; holes reach over every edge."""
    for height, width in SIZES:
        size = 3 * height * width
        for part in (slice(PAGES - size, PAGES), slice(0, size)):
            images = torch.from_numpy(memory[part].reshape(1, height, width, 3))
            for layout, dtype in (("NCHW", "float32"), ("NHWC", "float16")):
                print("inputs", layout, dtype, (height, width), flush=True)
                wanted = Output((127.0,) * 3, (64.0,) * 3, layout, dtype)
                for corner in (-3, height - 2):
                    inputs_of(images, wanted, holes=np.array([[corner, corner]]), side=5)


if __name__ == "__main__":
    main()
