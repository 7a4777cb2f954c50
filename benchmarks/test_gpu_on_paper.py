"""The GPU side where there is no GPU: what the compiler and the host harness can count.

Nothing here was measured on a device. A GPU owner compares with `test_ops.py --device cuda`.
"""

from __future__ import annotations

import numpy as np
import pytest
from harness.assembler import ARCHITECTURES, usage_of
from harness.bank import bank_kernels, bank_on
from harness.host_kernels import KERNELS
from peers import argument_of

from ddas_gpu.ops import OPS, apply_op
from ddas_gpu.ops.cuda import BLOCK

# From NVIDIA's programming guide: threads, blocks, registers and shared bytes of a multiprocessor.
MULTIPROCESSORS = {
    75: (1024, 16, 65536, 64 << 10),
    80: (2048, 32, 65536, 164 << 10),
    90: (2048, 32, 65536, 228 << 10),
    100: (2048, 32, 65536, 228 << 10),
    120: (1536, 24, 65536, 100 << 10),
}
# From the data sheets: bytes per second of memory, and FLOP/s, which count a fused multiply-add as
# two.
DEVICES = {
    "T4": (320e9, 8.1e12),
    "2080 Ti": (616e9, 13.4e12),
    "A100 80GB": (2039e9, 19.5e12),
    "H100 SXM": (3350e9, 67e12),
    "B200": (8e12, 75e12),
}

RESOURCES = (
    "From NVRTC for each architecture. Occupancy: the share of a multiprocessor's threads that its "
    "registers, shared memory and block slots allow, in blocks of 512 threads."
)
TRAFFIC = (
    "Counted by the host harness on one image of 64×64: bytes a pixel that the threads ask for, "
    "atomics included. The caches serve the neighbours: from memory every op needs 3 bytes in and "
    "3 out, and those that look at the whole image first 3 more. One launch a batch, always."
)
CALCULATED = (
    "Calculated, not measured: a policy of two ops at 224×224, batches large enough to fill the "
    "device. Memory: published bandwidth over the 12 bytes a pixel that must move. Arithmetic: "
    "half the published float operations over the instructions of the bank's average op, counted "
    "on the CPU without vectors. The lower number is the one to compare with "
    "`pytest benchmarks/test_policy_step.py --device cuda`."
)


def occupancy(architecture: int, registers: int, shared: int) -> float:
    """Return the occupancy; warps take registers in units of 256."""
    threads, blocks, all_registers, all_shared = MULTIPROCESSORS[architecture]
    size = int(np.prod(BLOCK))
    registers_a_block = size // 32 * -(-registers * 32 // 256) * 256
    fitting = min(threads // size, blocks, all_registers // registers_a_block)
    if shared:
        fitting = min(fitting, all_shared // (shared + 1024))
    return fitting * size / threads


@pytest.mark.parametrize("source", sorted(KERNELS.glob("*.cu")), ids=lambda path: path.stem)
def test_resources(source, tables):
    columns = ("kernel", "architecture", "registers", "shared bytes", "spills", "occupancy")
    table = tables.get_or_make("Kernels, from the compiler", columns, RESOURCES)
    for architecture in ARCHITECTURES:
        for name, usage in usage_of(source.read_text(), source.name, architecture).items():
            share = occupancy(architecture, usage.registers, usage.shared_bytes)
            table.add(name, f"sm_{architecture}", *usage, f"{share:.0%}")


def test_traffic(tables):
    kernels = bank_kernels(racecheck=True)
    columns = ("op", "kernel", "global read", "global written", "shared")
    table = tables.get_or_make("Memory traffic of the kernels", columns, TRAFFIC)
    images = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3), dtype=np.uint8)
    launched, launch = [], kernels.launch
    kernels.launch = lambda name, *rest: (launched.append(name), launch(name, *rest))
    with bank_on(kernels):
        for name in OPS:
            apply_op(images, name, argument_of(name))
            shared = sum(
                kernels.bytes_moved(kind, shared=True) for kind in ("read", "write", "atomic")
            )
            moved = (kernels.bytes_moved("read"), kernels.bytes_moved("write"), shared)
            table.add(name, launched[-1], *(f"{total / 64**2:.1f}" for total in moved))
    assert len(launched) == len(OPS)


def test_calculated_throughput(tables, scalar_instructions):
    columns = ("device", "memory allows", "arithmetic allows", "images/s")
    table = tables.get_or_make("Images a second on a GPU", columns, CALCULATED)
    # On a GPU these ops are gathers, as ShearY is: it has no vector units for moving rows.
    gather = scalar_instructions["ShearY"]
    a_pixel = 2 * np.mean([max(gather, count) for count in scalar_instructions.values()])
    for device, (bandwidth, operations) in DEVICES.items():
        memory, arithmetic = bandwidth / (224**2 * 12), operations / 2 / (224**2 * a_pixel)
        least = f"{min(memory, arithmetic):,.0f} (calculated)"
        table.add(device, f"{memory:,.0f}", f"{arithmetic:,.0f}", least)
