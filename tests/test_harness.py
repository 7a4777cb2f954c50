"""The host harness runs correct kernels correctly and catches the mistakes it is there for."""

from __future__ import annotations

import numpy as np
import pytest
from harness import HostKernels, KernelError
from harness.host_kernels import ORDERS

# One sum a block, by halving in shared memory; and the sum of all by an atomic.
TOTALS = """
extern "C" __global__ void __launch_bounds__(256)
totals(const int* values, int count, int* sums, unsigned long long* all) {
    __shared__ int part[256];
    int thread = threadIdx.x, sum = 0;
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + thread; i < count; i += stride) sum += values[i];
    part[thread] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (thread < half) part[thread] += part[thread + half];
        __syncthreads();
    }
    if (thread == 0) sums[blockIdx.x] = part[0];
    atomicAdd(all, sum);
}
"""


class Totals:
    """The kernel with memory around it."""

    def __init__(self, text: str = TOTALS, blocks: int = 3, **settings) -> None:
        self.kernels = HostKernels({"totals.cu": text}, **settings)
        self.values = np.arange(1000, dtype=np.int32)
        self.sums = np.zeros(blocks, np.int32)
        self.all = np.zeros(1, np.uint64)
        self.blocks = blocks

    def run(self, threads: int = 256) -> None:
        pointers = [np.uintp(array.ctypes.data) for array in (self.values, self.sums, self.all)]
        args = (pointers[0], np.int32(self.values.size), *pointers[1:])
        self.kernels.watch(self.values, self.sums, self.all)
        self.kernels.launch("totals", (self.blocks, 1, 1), (threads, 1, 1), args)

    def right(self) -> bool:
        grid = np.arange(1000) // 256 % self.blocks
        return self.all[0] == self.values.sum() and np.array_equal(
            self.sums, np.bincount(grid, self.values, self.blocks)
        )


def mutated(old: str, new: str) -> str:
    assert old in TOTALS
    return TOTALS.replace(old, new, 1)


@pytest.mark.parametrize("racecheck", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_a_correct_kernel_gives_correct_results(order: str, racecheck: bool) -> None:
    totals = Totals(order=order, racecheck=racecheck)
    totals.run()
    assert totals.right()


NO_BARRIER = mutated("part[thread] = sum;\n    __syncthreads();", "part[thread] = sum;")


def test_a_missing_barrier_gives_wrong_results_in_some_order() -> None:
    results = []
    for order in ORDERS:
        totals = Totals(NO_BARRIER, order=order)
        totals.run()
        results.append(totals.right())
    assert not all(results)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (NO_BARRIER, "with no barrier in between|nobody has written"),
        (
            mutated("atomicAdd(all, sum);", "*all += sum;"),
            "which (thread|another block)",
        ),
        (mutated("i < count;", "i <= count;"), r"0 bytes past the end of array 0 \(totals.cu:7"),
        (mutated("sums[blockIdx.x]", "sums[blockIdx.x + 1]"), "writes 4 bytes out of bounds"),
        (mutated("sums[blockIdx.x]", "sums[0]"), "writes byte 0 of array 1, which another block"),
        (mutated("    part[thread] = sum;", ""), "shared memory, which nobody has written"),
        (mutated("+= part[thread + half]", "+= part[thread + half - 1]"), "no barrier in between"),
    ],
    ids=["barrier", "atomic", "read bound", "write bound", "blocks", "unwritten", "neighbour"],
)
def test_racecheck_finds_the_mistake_in_every_order(text: str, complaint: str, order: str) -> None:
    totals = Totals(text, order=order, racecheck=True)
    with pytest.raises(KernelError, match=complaint):
        totals.run()


def test_a_kernel_runs_after_one_that_failed() -> None:
    totals = Totals(racecheck=True)
    pointer = np.uintp(totals.values.ctypes.data)
    totals.kernels.watch(totals.values)
    args = (pointer, np.int32(1001), pointer, pointer)
    with pytest.raises(KernelError, match="out of bounds"):
        totals.kernels.launch("totals", (3, 1, 1), (256, 1, 1), args)
    totals.run()
    assert totals.right()


def test_shared_memory_is_poisoned_for_every_block() -> None:
    text = """
    extern "C" __global__ void leak(int* out) {
        __shared__ int before;
        out[blockIdx.x] = before;
        before = 7;
    }"""
    kernels, out = HostKernels({"leak.cu": text}), np.zeros(2, np.int32)
    kernels.launch("leak", (2, 1, 1), (1, 1, 1), (np.uintp(out.ctypes.data),))
    assert (out.view(np.uint32) == 0xA5A5A5A5).all()


@pytest.mark.parametrize("order", ORDERS)
def test_threads_that_wait_at_different_barriers_are_found(order: str) -> None:
    text = """
    extern "C" __global__ void split() {
        if (threadIdx.x < 5)
            __syncthreads();
        else
            __syncthreads();
    }"""
    with pytest.raises(KernelError, match=r"divergence.*split.cu:4.*split.cu:6"):
        HostKernels({"split.cu": text}, order=order).launch("split", (1, 1, 1), (32, 1, 1), ())


def test_threads_that_have_exited_are_not_waited_for() -> None:
    text = """
    extern "C" __global__ void leave(int* out) {
        if (threadIdx.x >= 5) return;
        int here = __syncthreads_count(1);
        out[threadIdx.x] = here;
    }"""
    kernels, out = HostKernels({"leave.cu": text}), np.zeros(5, np.int32)
    kernels.launch("leave", (1, 1, 1), (32, 1, 1), (np.uintp(out.ctypes.data),))
    assert (out == 5).all()


@pytest.mark.parametrize("order", ORDERS)
def test_warp_functions(order: str) -> None:
    text = """
    extern "C" __global__ void warps(int* out) {
        int lane = threadIdx.x % 32, sum = threadIdx.x;
        for (int half = 16; half; half /= 2) sum += __shfl_down_sync(~0u, sum, half);
        sum = __shfl_sync(~0u, sum, 0);
        int swapped = __shfl_xor_sync(~0u, lane, 1);
        int odd = __popc(__ballot_sync(~0u, lane & 1));
        int most = __reduce_max_sync(~0u, lane);
        int* mine = out + 4 * threadIdx.x;
        mine[0] = sum, mine[1] = swapped, mine[2] = odd, mine[3] = most;
    }"""
    kernels, out = HostKernels({"warps.cu": text}, order=order), np.zeros((64, 4), np.int32)
    kernels.launch("warps", (1, 1, 1), (64, 1, 1), (np.uintp(out.ctypes.data),))
    thread = np.arange(64)
    sums = thread.reshape(2, 32).sum(axis=1).repeat(32)
    expected = np.stack([sums, thread % 32 ^ 1, np.full(64, 16), np.full(64, 31)], axis=1)
    assert np.array_equal(out, expected)


def test_a_shuffle_from_a_lane_that_has_exited_is_found() -> None:
    text = """
    extern "C" __global__ void gone() {
        if (threadIdx.x == 3) return;
        __shfl_sync(~0u, 1, 3);
    }"""
    with pytest.raises(KernelError, match="does not take part"):
        HostKernels({"gone.cu": text}).launch("gone", (1, 1, 1), (32, 1, 1), ())


P, N = np.uintp(0), np.int32(0)


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ((P, N, P), r"totals takes 4 arguments \(const int\* values, .*\), not 3"),
        ((P, N, P, P, P), "not 5"),
        ((P, np.int64(0), P, P), "'int count' takes an integer of 4 bytes, not int64"),
        ((P, np.float32(0), P, P), "'int count' takes an integer of 4 bytes, not float32"),
        ((P, N, P, np.float64(0)), r"'unsigned long long\* all' takes a pointer of 8 bytes"),
        ((P, 0, P, P), "'int count' takes a numpy scalar, not 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(args: tuple, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        Totals().kernels.launch("totals", (1, 1, 1), (32, 1, 1), args)


@pytest.mark.parametrize(
    ("grid", "block", "complaint"),
    [
        ((0, 1, 1), (32, 1, 1), r"grid \(0, 1, 1\)"),
        ((1, 65536, 1), (32, 1, 1), r"grid \(1, 65536, 1\)"),
        ((1, 1, 1), (1, 1, 65), r"block \(1, 1, 65\)"),
        ((1, 1, 1), (32, 16, 1), "more than 256 threads"),
    ],
)
def test_shapes_that_a_gpu_refuses_are_refused(grid: tuple, block: tuple, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Totals().kernels.launch("totals", grid, block, (P, N, P, P))


def test_an_unknown_kernel_is_named() -> None:
    with pytest.raises(ValueError, match="unknown kernel 'sum'; there are: totals"):
        Totals().kernels.launch("sum", (1, 1, 1), (1, 1, 1), ())
