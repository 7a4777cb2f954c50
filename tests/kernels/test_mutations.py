"""A mistake in a kernel makes a check fail: each barrier, each atomic and the bounds are needed.

Each mutation is made to the text of the sources, compiled for the host, and run over all ops with
the race check on. Nothing found means that the tests would not see such a mistake either.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import oracle
import pytest
import torch
from harness import HostKernels, KernelError
from harness.bank import bank_kernels, bank_on
from harness.host_kernels import KERNELS

from ddas_gpu import SearchSpace, augment
from ddas_gpu.ops import OPS, apply_op
from ddas_gpu.ops.box_policies import plan_boxes, run_steps
from ddas_gpu.ops.inputs import inputs_of, padded_inputs
from ddas_gpu.pipelines import pixels
from ddas_gpu.pipelines.pixels import cut_holes
from ddas_gpu.pipelines.transform import Output

SPACE = SearchSpace.preset("imagenet")
PLANAR = Output((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
BOXES = SearchSpace.preset("coco")
# Wider and higher than a block of threads; and as many rows as take two blocks in solarize.cu.
SIZES = [(18, 35), (70, 33)]


class Mutation(NamedTuple):
    file: str
    old: str
    new: str
    kernel: str = "augment"  # where it shows; this one has all ops
    occurrence: int | None = None  # of the old text in the file; None: there must be only one

    def __str__(self) -> str:
        which = "" if self.occurrence is None else f" {self.occurrence + 1}"
        return f"{self.file}: {self.old}{which} -> {self.new}"

    def text(self) -> str:
        parts = (KERNELS / self.file).read_text().split(self.old)
        if self.occurrence is None:
            assert len(parts) == 2, f"{self.old!r} is in {self.file} {len(parts) - 1} times"
        before = 1 + (self.occurrence or 0)
        return self.old.join(parts[:before]) + self.new + self.old.join(parts[before:])


# The kernel in which a mistake in a file shows.
KERNEL_OF = {"chain.cuh": "augment_parts", "inputs.cuh": "inputs"}


def everywhere(pattern: str, new: str) -> Iterator[Mutation]:
    """A mutation at each match in the sources."""
    for path in sorted([*KERNELS.glob("*.cu"), *KERNELS.glob("*.cuh")]):
        seen: Counter[str] = Counter()
        kernel = KERNEL_OF.get(path.name, "augment")
        for match in re.finditer(pattern, path.read_text()):
            new_text = match.expand(new)
            yield Mutation(path.name, match[0], new_text, kernel, occurrence=seen[match[0]])
            seen[match[0]] += 1


MUTATIONS = [
    *everywhere(r"__syncthreads\(\);", ";"),
    *everywhere(r"atomicAdd\(&(.+?), (.+?)\);", r"\1 += \2;"),
    *everywhere(r"atomicMin\(&(.+?), (.+?)\);", r"\1 = min(\1, \2);"),
    *everywhere(r"atomicMax\(&(.+?), (.+?)\);", r"\1 = max(\1, \2);"),
    Mutation("blocks.cuh", "; y < job.height;", "; y <= job.height;"),
    Mutation("blocks.cuh", "; x < job.width;", "; x <= job.width;"),
    Mutation("blocks.cuh", "x < job.width - margin", "x <= job.width - margin"),
    Mutation("blocks.cuh", "y >= margin", "y >= margin - 1"),
    Mutation("blocks.cuh", "from_x < job.width", "from_x <= job.width"),
    Mutation("blocks.cuh", "from_y >= 0", "from_y >= -1"),
    Mutation("blocks.cuh", "i < words;", "i <= words;"),
    Mutation("blocks.cuh", "first < pixels % 4", "first <= pixels % 4"),
    Mutation(
        "blocks.cuh", "i += 3 * gridDim.y * BLOCK_THREADS", "i += 3 * BLOCK_THREADS", "solarize"
    ),
    Mutation("chain.cuh", "(long long)task->top * pitch", "task->top", "augment_parts"),
    Mutation("blocks.cuh", "k < group;", "k <= group;", "equalize"),
    Mutation("blocks.cuh", "y += gridDim.y * blockDim.y", "y += blockDim.y", "solarize"),
    Mutation("blocks.cuh", "y = blockIdx.y * blockDim.y", "y = 0", "posterize"),
    Mutation("inputs.cuh", "y < inputs.height;", "y <= inputs.height;", "inputs"),
    Mutation("inputs.cuh", "x < inputs.width;", "x <= inputs.width;", "inputs"),
    Mutation("inputs.cuh", "? pixels : 1;", "? 1 : 1;", "inputs"),
    Mutation("inputs.cuh", "blockIdx.x * 3 * pixels", "0", "inputs"),
    Mutation("tasks.h", "x < hole.right", "x <= hole.right", "inputs"),
    Mutation("tasks.h", "y >= hole.top", "y > hole.top", "inputs"),
    Mutation("tasks.h", "x < width &&", "x <= width &&", "inputs_parts"),
    Mutation("tasks.h", "y < height &&", "y <= height &&", "inputs_parts"),
    Mutation("chain.cuh", "(to_target || passes.parts)", "to_target", "inputs_parts"),
]


def check(kernels: HostKernels, kernel: str) -> None:
    """Fails if the kernel differs from Pillow or does what it must not."""
    checks = {
        "augment": check_augment,
        "augment_parts": check_parts,
        "inputs": check_inputs,
        "inputs_parts": check_inputs_with_parts,
    }
    got, want = checks[kernel](kernels) if kernel in checks else check_one_op(kernels, kernel)
    for i, (result, expected) in enumerate(zip(got, want, strict=True)):
        assert np.array_equal(result, expected), f"image {i} is wrong"


def policies_for_all_ops() -> np.ndarray:
    """Each candidate alone, chains of three, and an image that is left alone."""
    alone = np.stack([np.arange(len(SPACE)), *np.full((2, len(SPACE)), -1)], axis=1)
    chains = np.random.default_rng(0).integers(0, len(SPACE), (8, 3))
    return np.concatenate([alone, chains, [[-1, -1, -1]]])


def check_augment(kernels: HostKernels) -> tuple:
    rng, policies = np.random.default_rng(0), policies_for_all_ops()
    shapes = [(*SIZES[i % 2], 3) for i in range(len(policies))]
    images = [rng.integers(20, 230, shape, dtype=np.uint8) for shape in shapes]
    with bank_on(kernels):
        got = augment(images, policies, SPACE, seed=1, backend="cpu")
    return got, oracle.augment(images, policies, SPACE, seed=1)


def check_one_op(kernels: HostKernels, kernel: str) -> tuple:
    op = next(op for op in OPS.values() if op.name.lower() == kernel)
    images = oracle.patterns(*SIZES[1])[:2]
    argument = oracle.arguments_of(op)[0]
    with bank_on(kernels):
        got = apply_op(images, op.name, argument, backend="cpu")
    return got, oracle.apply_op(images, op, argument)


def with_boxes() -> tuple:
    """Images, the steps on them, and Pillow's results."""
    rng, count = np.random.default_rng(0), len(BOXES)
    images = [rng.integers(20, 230, (40, 50, 3), dtype=np.uint8) for _ in range(count)]
    boxes, labels = [[[3, 4, 40, 36], [10, 2, 48, 20]]] * count, [[0, 1]] * count
    policies = np.stack([np.arange(count), rng.permutation(count)], axis=1)
    steps = plan_boxes([(40, 50)] * count, boxes, labels, policies, BOXES, 1).steps
    pairs = zip(images, steps, strict=True)
    return images, steps, [oracle.run_steps(*pair, BOXES.fill) for pair in pairs]


def check_parts(kernels: HostKernels) -> tuple:
    images, steps, want = with_boxes()
    with bank_on(kernels):
        return run_steps(images, steps, BOXES.fill), want


def check_inputs(kernels: HostKernels) -> tuple:
    rng, policies = np.random.default_rng(0), policies_for_all_ops()
    images = rng.integers(20, 230, (len(policies), *SIZES[0], 3), dtype=np.uint8)
    corners = rng.integers(-3, 30, (len(policies), 2))
    options = {"holes": corners, "side": 7}
    with bank_on(kernels):
        request = SPACE.request(policies, len(images), 1)
        got = inputs_of(torch.from_numpy(images), PLANAR, request, **options)
    want = normalise(torch.from_numpy(np.stack(oracle.augment(images, policies, SPACE, 1))))
    cut_holes(want, corners, 7)
    return got.numpy(), want.numpy()


def check_inputs_with_parts(kernels: HostKernels) -> tuple:
    images, steps, want = with_boxes()
    tensors = [torch.from_numpy(image) for image in images]
    with bank_on(kernels):
        got = padded_inputs(tensors, PLANAR, (43, 57), steps, BOXES.fill)
    changed = torch.zeros(len(images), 3, 43, 57)
    changed[:, :, :40, :50] = normalise(torch.from_numpy(np.stack(want)))
    return got.numpy(), changed.numpy()


def normalise(images: torch.Tensor) -> torch.Tensor:
    return pixels.normalise(images, PLANAR.mean, PLANAR.std)


@pytest.mark.parametrize("kernel", sorted(path.stem for path in KERNELS.glob("*.cu")))
def test_the_kernels_as_they_are_pass(kernel: str) -> None:
    check(bank_kernels(racecheck=True, only=kernel), kernel)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_mutation_is_found(mutation: Mutation) -> None:
    kernels = bank_kernels(
        {mutation.file: mutation.text()}, order="shuffled", racecheck=True, only=mutation.kernel
    )
    with pytest.raises((KernelError, AssertionError)):
        check(kernels, mutation.kernel)


def test_there_are_barriers_and_atomics_to_remove() -> None:
    changed = " ".join(map(str, MUTATIONS))
    assert all(word in changed for word in ("__syncthreads", "atomicAdd", "atomicMin", "atomicMax"))
