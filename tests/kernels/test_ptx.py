"""The PTX of the kernels, executed on the host, returns Pillow's bytes.

NVRTC makes it with the launcher's options, and the launcher starts it, with the threads of a block
in several orders. Bounds, alignment, races and barriers are checked. NVRTC gives the same PTX for
compute_75 to 90, and another for 100 and later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import numpy as np
import oracle
import pytest
from harness import HostKernels, KernelError
from harness.assembler import skip_unless_known
from harness.bank import bank_on
from harness.host_kernels import ORDERS
from harness.ptx.bank import NAMES, bank_ptx, ptx_kernels, ptx_of
from harness.ptx.translate import translate

from ddas_gpu import SearchSpace, augment
from ddas_gpu.ops import OPS, PixelScale, apply_op, augment_boxes

pytest.importorskip("cupy.cuda", reason="needs CuPy")

ARCHITECTURES = (75, 100)
SIZES = [(1, 1), (7, 5), (32, 32), (33, 47)]
MORE_SIZES = [(1, 7), (2, 2), (5, 3), (16, 33), (65, 40), (150, 20)]
SPACE = SearchSpace.preset("imagenet")
BOXES = SearchSpace.preset("coco")

kernels_for = cache(bank_ptx)


@pytest.fixture(params=ARCHITECTURES, ids=lambda number: f"compute_{number}")
def architecture(request: pytest.FixtureRequest) -> int:
    skip_unless_known(request.param)
    return request.param


@pytest.fixture(params=ORDERS)
def on_ptx(request: pytest.FixtureRequest, architecture: int) -> Iterator[None]:
    """Within, images on the CPU go through the GPU launcher to the PTX."""
    with bank_on(kernels_for(architecture, request.param)):
        yield


def check_op(op, sizes, every: int) -> None:
    for size in sizes:
        images = oracle.patterns(*size)[[0, 5, 6]]
        if oracle.is_refused(op, images, apply_op):
            continue
        for argument in oracle.arguments_of(op)[::every]:
            got = apply_op(images, op.name, argument, backend="cpu")
            for result, want in zip(got, oracle.apply_op(images, op, argument), strict=True):
                difference = oracle.first_difference(result, want)
                assert difference == "equal", f"{op.name} {argument} {size}: {difference}"


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_op_is_exact(op, on_ptx) -> None:
    check_op(op, SIZES, every=11)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_op_is_exact_at_every_level(op, on_ptx) -> None:
    check_op(op, SIZES + MORE_SIZES, every=1)


def test_chains_on_images_of_many_sizes(on_ptx) -> None:
    rng = np.random.default_rng(2)
    images = [rng.integers(0, 256, (*rng.integers(1, 50, 2), 3), dtype=np.uint8) for _ in range(24)]
    policies = rng.integers(-1, len(SPACE), (24, 3))
    got = augment(images, policies, SPACE, seed=3, backend="cpu")
    for i, want in enumerate(oracle.augment(images, policies, SPACE, seed=3)):
        assert (got[i] == want).all(), f"image {i} of {images[i].shape}, policy {policies[i]}"


def test_rows_that_lie_apart(on_ptx) -> None:
    view = oracle.patterns(40, 50)[:3, 3:30, 5:41]
    for name, argument in [("Blur", None), ("Equalize", None), ("Rotate", 18.0), ("Solarize", 128)]:
        got = apply_op(view, name, argument, backend="cpu")
        assert (got == np.stack(oracle.apply_op(view, OPS[name], argument))).all(), name


@pytest.mark.parametrize("name", ["Solarize", "Posterize", "Equalize"])
def test_several_blocks_per_image(name, on_ptx) -> None:
    images = oracle.patterns(150, 20)[:2]
    argument = None if OPS[name].law is None else OPS[name].law(6, PixelScale())
    got = apply_op(images, name, argument, backend="cpu")
    assert (got == np.stack(oracle.apply_op(images, OPS[name], argument))).all()


def test_ops_on_boxes(on_ptx) -> None:
    rng = np.random.default_rng(0)
    images = [rng.integers(20, 230, (40, 50, 3), dtype=np.uint8) for _ in BOXES.candidates]
    boxes, labels = [[[3, 4, 40, 36], [10, 2, 48, 20]]] * len(images), [[0, 1]] * len(images)
    policies = np.stack([np.arange(len(BOXES)), rng.permutation(len(BOXES))], axis=1)
    task = (images, boxes, labels, policies, BOXES, 1)
    got = augment_boxes(*task, backend="cpu")[0]
    want = augment_boxes(*task, backend="kornia")[0]  # Pillow
    for i, (result, expected) in enumerate(zip(got, want, strict=True)):
        assert np.array_equal(result, expected), f"image {i}, policy {policies[i]}"


# --- a mistake in the PTX is found ---


def check_kernel(kernels: HostKernels, name: str) -> None:
    """Run the op of this name; for augment all ops, alone and in chains."""
    with bank_on(kernels):
        if name != "augment":
            op = next(op for op in OPS.values() if op.name.lower() == name)
            return check_op(op, [(18, 35), (70, 33), (64, 40)], every=31)
        rng = np.random.default_rng(0)
        alone = np.stack([np.arange(len(SPACE)), *np.full((2, len(SPACE)), -1)], axis=1)
        policies = np.concatenate([alone, rng.integers(0, len(SPACE), (8, 3)), [[-1, -1, -1]]])
        images = [rng.integers(20, 230, (18, 35, 3), dtype=np.uint8) for _ in policies]
        got = augment(images, policies, SPACE, seed=1, backend="cpu")
        for result, want in zip(got, oracle.augment(images, policies, SPACE, 1), strict=True):
            assert np.array_equal(result, want)


def removed(text: str, pattern: str) -> Iterator[str]:
    """The text without one of the matches, for each of them."""
    for match in re.finditer(pattern, text):
        yield text[: match.start()] + text[match.end() :]


def is_found(name: str, mutation: str) -> bool:
    try:
        check_kernel(ptx_kernels({name: mutation}, "shuffled"), name)
    except (KernelError, AssertionError):
        return True
    return False


BARRIER = r"\n\s*(?:bar|barrier)\.sync[^;]*;"


def test_each_barrier_of_equalize_is_needed(architecture: int) -> None:
    text = ptx_of("equalize", architecture)
    check_kernel(ptx_kernels({"equalize": text}, "shuffled"), "equalize")
    mutations = list(removed(text, BARRIER))
    assert len(mutations) >= 3
    assert all(is_found("equalize", mutation) for mutation in mutations)


@pytest.mark.slow
def test_each_barrier_of_augment_is_needed(architecture: int) -> None:
    found = [is_found("augment", one) for one in removed(ptx_of("augment", architecture), BARRIER)]
    # All but the one behind the copy for an empty chain, where the block ends: chain.cuh has it for
    # augment_parts.
    assert len(found) >= 8 and found.count(False) <= 1


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        (r"(st\.global\.\w+\s*\[%rd\d+)\+(\d+)\]", r"\1+1\2]"),  # an offset
        (r"(st\.\w+\.?u?b?8\s*\[%rd\d+)\]", r"\1+3]"),
        (r"(ld\.global\.u?b?32\s*%r\d+, \[%rd\d+\+)32\]", r"\g<1>28]"),
        (r"(ld\.global\.v2\.\w+\s*\{.*?\}, \[%rd\d+\+)24\]", r"\g<1>28]"),  # misaligned
        (r"(setp\.)ge(\.s32)", r"\1gt\2"),  # one pixel too many
        (r"(mul\.wide\.u32.*), 40;", r"\1, 48;"),  # the size of a record
    ],
)
def test_a_changed_instruction_is_found(pattern: str, new: str, architecture: int) -> None:
    text, count = re.subn(pattern, new, ptx_of("posterize", architecture))
    assert count, f"{pattern} is not in the PTX"
    assert is_found("posterize", text)


@pytest.mark.parametrize(("number", "run_here"), [(80, 75), (90, 75), (120, 100)])
def test_other_architectures_get_the_same_ptx(number: int, run_here: int) -> None:
    skip_unless_known(number)
    for name in NAMES:
        assert translate(ptx_of(name, number), name) == translate(ptx_of(name, run_here), name)
