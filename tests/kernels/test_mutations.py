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
from harness import HostKernels, KernelError
from harness.bank import bank_kernels, bank_on
from harness.host_kernels import KERNELS

from ddas_gpu import SearchSpace, augment
from ddas_gpu.ops import OPS, apply_op, augment_boxes

SPACE = SearchSpace.preset("imagenet")
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


def everywhere(pattern: str, new: str) -> Iterator[Mutation]:
    """A mutation at each match in the sources."""
    for path in sorted([*KERNELS.glob("*.cu"), *KERNELS.glob("*.cuh")]):
        seen: Counter[str] = Counter()
        kernel = "augment_parts" if path.name == "chain.cuh" else "augment"
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
]


def check(kernels: HostKernels, kernel: str) -> None:
    """Fails if the kernel differs from Pillow or does what it must not."""
    if kernel == "augment":
        # Each candidate alone, chains of three, and an image that is left alone.
        rng = np.random.default_rng(0)
        alone = np.stack([np.arange(len(SPACE)), *np.full((2, len(SPACE)), -1)], axis=1)
        chains = rng.integers(0, len(SPACE), (8, 3))
        policies = np.concatenate([alone, chains, [[-1, -1, -1]]])
        shapes = [(*SIZES[i % 2], 3) for i in range(len(policies))]
        images = [rng.integers(20, 230, shape, dtype=np.uint8) for shape in shapes]
        with bank_on(kernels):
            got = augment(images, policies, SPACE, seed=1, backend="cpu")
        want = oracle.augment(images, policies, SPACE, seed=1)
    elif kernel == "augment_parts":
        rng = np.random.default_rng(0)
        images = [rng.integers(20, 230, (40, 50, 3), dtype=np.uint8) for _ in BOXES.candidates]
        boxes, labels = [[[3, 4, 40, 36], [10, 2, 48, 20]]] * len(images), [[0, 1]] * len(images)
        policies = np.stack([np.arange(len(BOXES)), rng.permutation(len(BOXES))], axis=1)
        task = (images, boxes, labels, policies, BOXES, 1)
        with bank_on(kernels):
            got = augment_boxes(*task, backend="cpu")[0]
        want = augment_boxes(*task, backend="kornia")[0]  # Pillow
    else:
        op = next(op for op in OPS.values() if op.name.lower() == kernel)
        images = oracle.patterns(*SIZES[1])[:2]
        argument = oracle.arguments_of(op)[0]
        with bank_on(kernels):
            got = apply_op(images, op.name, argument, backend="cpu")
        want = oracle.apply_op(images, op, argument)
    for i, (result, expected) in enumerate(zip(got, want, strict=True)):
        assert np.array_equal(result, expected), f"image {i} is not Pillow's"


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
