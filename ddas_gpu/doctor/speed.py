"""Images per second and bytes per second; nothing here can fail by being slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from ddas_gpu.doctor.bank import SEED, on_device
from ddas_gpu.doctor.checks import Finding, check
from ddas_gpu.doctor.first_steps import open_loader
from ddas_gpu.doctor.machine import Machine
from ddas_gpu.doctor.pictures import batch, write_classes
from ddas_gpu.ops import apply_op, augment
from ddas_gpu.space import SearchSpace

SECONDS = 0.5  # of each measurement
SIZE = 224
BATCH = 256  # 38 MB: more than most caches hold
FILES = {"cpu": 32, "cuda": 512}  # JPEGs, in two batches, read several times


@check("speed of the op bank")
def bank_speed(machine: Machine) -> Finding:
    space = SearchSpace.preset("imagenet")
    images, out = buffers(machine)
    policies = np.random.default_rng(SEED).integers(0, len(space), (len(images), 2))
    seconds = time_of(lambda: augment(images, policies, space, SEED, out=out), machine.device)
    rate = len(images) / seconds
    text = f"{rate:,.0f} images/s of {SIZE}×{SIZE} pixels, 2 ops each, on {machine.device}"
    return Finding(text, {"images per second": rate, "batch": len(images)})


@check("memory bandwidth of the op bank")
def bandwidth(machine: Machine) -> Finding:
    """An op on every byte reads and writes as much as a copy does."""
    import torch

    images, out = buffers(machine)
    moved = 2 * images.nbytes / 1e9
    source, target = (torch.from_numpy(i) if machine.no_gpu else i for i in (images, out))
    op = moved / time_of(lambda: apply_op(images, "Invert", out=out), machine.device)
    copy = moved / time_of(lambda: target.copy_(source), machine.device)
    facts: dict[str, Any] = {"op GB/s": op, "copy GB/s": copy}
    text = f"Invert {op:.1f} GB/s, a copy {copy:.1f} GB/s"
    if machine.no_gpu is None and (peak := peak_bandwidth()):
        facts["device GB/s"] = peak
        text += f", the device {peak:.0f} GB/s"
    return Finding(text, facts)


@check("speed of the pipeline")
def pipeline_speed(machine: Machine) -> Finding:
    files = FILES[machine.device]
    root = write_classes(machine.folder / "speed", count=files, height=375, width=500)
    # In turns, and the better one of each: another program may be using the machine.
    turns = [[pipeline_rate(machine, root, policy) for policy in (False, True)] for _ in range(2)]
    plain, augmented = map(max, zip(*turns, strict=True))
    text = f"{plain:,.0f} images/s from JPEGs, {augmented:,.0f} with a policy"
    facts = {
        "images per second": plain,
        "with a policy": augmented,
        "batch": files // 2,
    }
    return Finding(f"{text}, on {machine.device}", facts)


def pipeline_rate(machine: Machine, root: object, policy: bool) -> float:
    """Return images per second of a loader; the first epoch does not count."""
    batch_size, epochs = FILES[machine.device] // 2, 4
    batches = open_loader(
        machine, root=root, batch_size=batch_size, epochs=epochs, size=SIZE, policy=policy
    )
    for _ in batches:
        pass
    wait(machine.device)
    start = time.perf_counter()
    images = sum(len(one[0]) for _ in range(1, epochs) for one in batches)
    wait(machine.device)
    return images / (time.perf_counter() - start)


def buffers(machine: Machine) -> tuple[Any, Any]:
    """Return a batch of photographs on the device, and memory of the same shape."""
    images = np.resize(batch(8, SIZE, SIZE), (BATCH, SIZE, SIZE, 3))
    return on_device(images, machine.device), on_device(np.zeros_like(images), machine.device)


def time_of(work: Callable[[], object], device: str) -> float:
    """Return the median seconds of a call."""
    work()
    wait(device)
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - start)
    return median(times)


def wait(device: str) -> None:
    """Wait for a GPU to finish its work."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def peak_bandwidth() -> float | None:
    """Return the GB/s of the device's data sheet, if CUDA still tells: version 13 does not."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    clock, width = properties.get("memoryClockRate", 0), properties.get("memoryBusWidth", 0)
    return 2 * clock * 1e3 * width / 8 / 1e9 or None  # kHz, twice per cycle, bits
