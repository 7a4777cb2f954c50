"""The unmodified CUDA kernels, through the launcher the GPU uses, on the host harness."""

import numpy as np
import oracle
import pytest
from harness.bank import bank_kernels, bank_on

from ddas_gpu import SearchSpace, augment
from ddas_gpu.ops import OPS, PixelScale, apply_op, versions
from ddas_gpu.ops.cuda import BLOCK

SPACE = SearchSpace.preset("imagenet")


@pytest.fixture(params=["forward", "reverse", "shuffled", "racecheck"])
def launches(request):
    """Images on the CPU go to the CUDA target, whose kernels run on the host; what it launched."""
    racecheck = request.param == "racecheck"
    kernels = bank_kernels(order="shuffled" if racecheck else request.param, racecheck=racecheck)
    launched, launch = [], kernels.launch

    def record(name, grid, block, args):
        launched.append(name)
        launch(name, grid, block, args)

    kernels.launch = record
    with bank_on(kernels):
        yield launched


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_op_is_exact(op, launches):
    for size in [(1, 1), (1, 7), (2, 2), (5, 3), (32, 32), (33, 17), (65, 40)]:
        images = oracle.patterns(*size)[[0, 1, 5, 6]]
        if oracle.is_refused(op, images, apply_op):
            continue
        for argument in oracle.arguments_of(op)[::9]:
            got = apply_op(images, op.name, argument)
            want = np.stack(oracle.apply_op(images, op, argument))
            assert (got == want).all(), f"{op.name} {argument} {size}"


def test_policies_of_their_own_for_images_of_many_sizes(launches):
    rng = np.random.default_rng(2)
    images = [rng.integers(0, 256, (*rng.integers(1, 50, 2), 3), dtype=np.uint8) for _ in range(24)]
    policies = rng.integers(-1, len(SPACE), (24, 3))
    got = augment(images, policies, SPACE, seed=3)
    for i, want in enumerate(oracle.augment(images, policies, SPACE, seed=3)):
        assert (got[i] == want).all(), f"image {i} of {images[i].shape}, policy {policies[i]}"
    assert launches == ["augment"]


def test_rows_that_lie_apart_are_read_in_place(launches):
    whole = oracle.patterns(40, 50)
    view = whole[:, 3:30, 5:41]
    for name, argument in [("Blur", None), ("Equalize", None), ("Rotate", 18.0), ("Color", 1.4)]:
        got = apply_op(view, name, argument)
        assert (got == np.stack(oracle.apply_op(view, OPS[name], argument))).all()


@pytest.mark.parametrize("name", ["Solarize", "Posterize", "Equalize", "Invert"])
def test_ops_with_kernels_of_their_own(name, launches):
    images = oracle.patterns(150, 20)  # more rows than one block takes
    argument = None if OPS[name].law is None else OPS[name].law(6, PixelScale())
    got = apply_op(images, name, argument)
    assert (got == np.stack(oracle.apply_op(images, OPS[name], argument))).all()
    assert launches == [{"Invert": "solarize"}.get(name, name.lower())]


@pytest.mark.parametrize(("batch", "policies", "depth"), [(1, 1, 1), (5, 3, 2), (9, 11, 4)])
def test_one_launch_whatever_the_batch_the_policies_and_the_space(launches, batch, policies, depth):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (batch, 6, 6, 3), dtype=np.uint8)
    chosen = rng.integers(0, len(SPACE), (policies, depth))
    got = versions(images, chosen, SPACE, seed=1)
    assert launches == ["augment"]
    row = chosen.reshape(1, -1).repeat(batch, axis=0)
    for number in range(policies):
        kept = np.full_like(row, -1)
        part = slice(number * depth, (number + 1) * depth)
        kept[:, part] = row[:, part]
        want = oracle.augment(images, kept, SPACE, seed=1)
        assert (got[number + 1] == np.stack(want)).all()


def test_an_empty_batch_launches_nothing(launches):
    got = augment(np.zeros((0, 8, 8, 3), np.uint8), [3, 4], SPACE)
    assert got.shape == (0, 8, 8, 3)
    assert launches == []


def test_contrast_adds_up_a_warp_before_its_atomic():
    """One atomic of 8 bytes per warp of the block, not one per thread."""
    kernels = bank_kernels(racecheck=True, only="augment")
    with bank_on(kernels):
        apply_op(oracle.patterns(40, 50)[:1], "Contrast", 1.4)
    assert kernels.bytes_moved("atomic", shared=True) == 8 * BLOCK[1]
