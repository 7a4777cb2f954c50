"""The contract: for every op, argument and image, the very bytes that Pillow returns."""

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddas_gpu import SearchSpace, augment
from ddas_gpu.ops import OPS, PixelScale, apply_op, versions

SIZES = [(1, 1), (1, 7), (2, 2), (5, 3), (32, 32), (33, 17), (97, 143), (224, 224)]
LARGE = [(480, 640), (40, 2049)]


def assert_exact(images, op, argument):
    if oracle.is_refused(op, images, apply_op, argument):
        return
    got = apply_op(images, op.name, argument)
    for i, want in enumerate(oracle.apply_op(images, op, argument)):
        assert (got[i] == want).all(), (
            f"{op.name} {argument}, image {i}: {oracle.first_difference(got[i], want)}"
        )


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_patterns(op, size):
    images = oracle.patterns(*size)
    if size == (224, 224):
        images = images[::4]
    for argument in oracle.arguments_of(op):
        assert_exact(images, op, argument)


@pytest.mark.parametrize("size", LARGE, ids=str)
@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_large_patterns(op, size):
    images = oracle.patterns(*size)[:1]
    for argument in oracle.arguments_of(op, PixelScale(translate=250, cutout=100))[::4]:
        assert_exact(images, op, argument)


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_photographs_of_many_sizes_in_one_batch(op, imagenet_images, coco_images):
    images = [*imagenet_images[:3], *coco_images[:3]]
    if op.square:
        images = [image[: min(image.shape[:2]), : min(image.shape[:2])] for image in images]
    for argument in oracle.arguments_of(op, PixelScale(translate=100, cutout=40))[::5]:
        assert_exact(images, op, argument)


def test_every_level_on_photographs(imagenet_images):
    small = np.stack([image[60:124, 40:104] for image in imagenet_images])
    for op in OPS.values():
        for argument in oracle.arguments_of(op):
            assert_exact(small, op, argument)


@st.composite
def op_calls(draw):
    """Any op on any bytes with any argument that it accepts."""
    op = draw(st.sampled_from(list(OPS.values())))
    height, width = draw(st.integers(1, 24)), draw(st.integers(1, 24))
    shape = (draw(st.integers(1, 3)), height, height if op.square else width, 3)
    count = int(np.prod(shape))
    images = np.frombuffer(draw(st.binary(min_size=count, max_size=count)), np.uint8)
    images = images.reshape(shape)
    if op.accepts is None:
        return images, op, None
    low, high = op.accepts.low, op.accepts.high
    numbers = st.integers(int(low), int(high)) if op.accepts.whole else st.floats(low, high)
    return images, op, draw(numbers)


@given(op_calls())
@settings(max_examples=200)
def test_any_bytes_and_arguments(call):
    assert_exact(*call)


SPACE = SearchSpace.preset("imagenet")


@given(st.integers(0, 2**32), st.integers(1, 4), st.sampled_from([(8, 8), (13, 9), (1, 5)]))
@settings(max_examples=60)
def test_a_policy_for_each_image(seed, depth, size):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (12, *size, 3), dtype=np.uint8)
    policies = rng.integers(-1, len(SPACE), (12, depth))
    got = augment(images, policies, SPACE, seed)
    assert (got == np.stack(oracle.augment(images, policies, SPACE, seed))).all()


@given(st.integers(0, 2**32), st.integers(0, 5), st.integers(0, 6))
@settings(max_examples=40)
def test_versions_are_the_batch_and_its_policies(seed, count, batch):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (batch, 9, 7, 3), dtype=np.uint8)
    policies = rng.integers(0, len(SPACE), (count, 2))
    got = versions(images, policies, SPACE, seed)
    assert (got[0] == images).all()
    # Version l draws at stages 2l and 2l + 1: all policies in a row, with the others left out.
    for number, policy in enumerate(policies):
        row = np.full((batch, 2 * count), -1)
        row[:, 2 * number : 2 * number + 2] = policy
        want = oracle.augment(images, row, SPACE, seed)
        assert all((a == b).all() for a, b in zip(got[number + 1], want, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["torch", "cupy"])
@pytest.mark.parametrize("size", [(1, 7), (33, 17), (224, 224)], ids=str)
@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_on_a_device(op, size, library):
    import cupy

    images = oracle.patterns(*size)
    on_device = torch.tensor(images, device="cuda") if library == "torch" else cupy.array(images)
    if oracle.is_refused(op, on_device, apply_op):
        return
    for argument in oracle.arguments_of(op)[::3]:
        got = apply_op(on_device, op.name, argument)
        assert type(got) is type(on_device)
        got = got.cpu().numpy() if library == "torch" else cupy.asnumpy(got)
        assert (got == np.stack(oracle.apply_op(images, op, argument))).all()


@pytest.mark.gpu
def test_policies_on_a_device_and_a_side_stream():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (64, 40, 30, 3), dtype=np.uint8)
    policies = rng.integers(-1, len(SPACE), (64, 3))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        on_device = torch.tensor(images).pin_memory().to("cuda", non_blocking=True)
        got = augment(on_device, policies, SPACE, seed=5)
    stream.synchronize()
    assert (got.cpu().numpy() == augment(images, policies, SPACE, seed=5)).all()
