"""The front door: kinds of arrays, layouts, `out=`, threads, and every wrong input."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ddas_gpu
from ddas_gpu import SearchSpace, augment
from ddas_gpu.ops import OPS, apply_op, get_num_threads, versions

SPACE = SearchSpace.preset("cifar")
IMAGES = oracle.patterns(13, 11)


def test_you_get_the_kind_you_passed():
    want = apply_op(IMAGES, "Equalize")
    tensor = apply_op(torch.from_numpy(IMAGES), "Equalize")
    images = apply_op(list(IMAGES), "Equalize")
    tensors = apply_op(list(torch.from_numpy(IMAGES)), "Equalize")
    assert isinstance(tensor, torch.Tensor)
    assert all(isinstance(image, np.ndarray) for image in images)
    assert all(isinstance(image, torch.Tensor) for image in tensors)
    for got in (tensor.numpy(), np.stack(images), torch.stack(tensors).numpy()):
        assert (got == want).all()


def test_the_input_is_left_as_it_was():
    before = IMAGES.copy()
    for name, op in OPS.items():
        if not op.square:
            apply_op(IMAGES, name, None if op.law is None else op.law(6, SPACE.scale))
    assert (before == IMAGES).all()


@pytest.mark.parametrize(
    "view",
    [
        lambda images: images[::2],
        lambda images: images[:, 2:9, 3:8],
        lambda images: images[:, ::-1],
        lambda images: images[:, :, ::2],
        lambda images: images[..., ::-1],
        lambda images: images.transpose(0, 2, 1, 3),
        lambda images: np.broadcast_to(images[:1], images.shape),
        lambda images: images[:0],
        lambda images: images[:1],
    ],
)
def test_any_layout(view):
    images = view(IMAGES)
    for got in (apply_op(images, "Blur"), apply_op(torch.tensor(images.copy()), "Blur").numpy()):
        assert got.shape == images.shape
        assert all(
            (got[i] == w).all() for i, w in enumerate(oracle.apply_op(images, OPS["Blur"], None))
        )


def test_arrays_alike_but_for_their_place_and_values():
    """What is kept of a call for the next one must not be more than they share."""
    wide = np.random.default_rng(0).integers(0, 256, (6, 9, 14, 3), np.uint8)
    parts = [wide[:3, :, :7], wide[3:, :, :7], wide[:3, :, 7:], wide[::2, :, 7:]]
    for images in [*parts, *(part.copy() for part in parts)]:
        for name, argument in [("FlipLR", None), ("Rotate", 18.0), ("Cutout", 4)]:
            want = oracle.apply_op(images, OPS[name], argument)
            assert (apply_op(images, name, argument) == np.stack(want)).all()


def test_out_is_written_and_returned():
    out = np.empty_like(IMAGES)
    assert apply_op(IMAGES, "Invert", out=out) is out
    assert (out == 255 - IMAGES).all()
    stack = np.empty((3, *IMAGES.shape), np.uint8)
    assert versions(IMAGES, [[5, 5], [1, 2]], SPACE, out=stack) is stack
    assert (stack[1] == IMAGES).all()
    assert (stack[2] == IMAGES[:, ::-1, ::-1]).all()


@given(st.permutations(range(len(IMAGES))), st.integers(0, 2**31))
def test_invariant_under_batch_order(order, seed):
    samples = np.arange(len(IMAGES)) + 100
    policies = np.random.default_rng(seed).integers(-1, len(SPACE), (len(IMAGES), 2))
    straight = augment(IMAGES, policies, SPACE, seed, samples=samples)
    shuffled = augment(IMAGES[order], policies[order], SPACE, seed, samples=samples[order])
    assert (straight[order] == shuffled).all()


def test_threads_do_not_change_the_result():
    images = np.random.default_rng(0).integers(0, 256, (40, 64, 64, 3), dtype=np.uint8)
    policies = np.random.default_rng(1).integers(0, len(SPACE), (40, 2))
    default, results = get_num_threads(), []
    try:
        for threads in (1, 2, 7):
            ddas_gpu.set_num_threads(threads)
            results.append(augment(images, policies, SPACE, 3))
    finally:
        ddas_gpu.set_num_threads(default)
    assert (results[0] == results[1]).all()
    assert (results[0] == results[2]).all()


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_a_wrong_number_of_threads(threads):
    with pytest.raises(ValueError, match="1 or more"):
        ddas_gpu.set_num_threads(threads)


SQUARES = np.zeros((2, 8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: apply_op(SQUARES.astype(np.float32), "Invert"), TypeError, "uint8, not float32"),
        (lambda: apply_op(torch.zeros(2, 8, 8, 3), "Invert"), TypeError, "not torch.float32"),
        (lambda: apply_op("image", "Invert"), TypeError, "not str"),
        (lambda: apply_op(None, "Invert"), TypeError, "not NoneType"),
        (lambda: apply_op(SQUARES[0], "Invert"), ValueError, r"\(B, H, W, 3\), not \(8, 8, 3\)"),
        (lambda: apply_op(SQUARES[..., :1], "Invert"), ValueError, r"not \(2, 8, 8, 1\)"),
        (lambda: apply_op(SQUARES[:, :0], "Invert"), ValueError, "must have pixels"),
        (lambda: apply_op([SQUARES[0], SQUARES], "Invert"), ValueError, r"images\[1\]"),
        (lambda: apply_op([SQUARES[0], torch.zeros(8, 8, 3, dtype=torch.uint8)], "Invert"),
         ValueError, "different kinds"),
        (lambda: apply_op(SQUARES, "invert"), ValueError, "unknown op 'invert'"),
        (lambda: apply_op(SQUARES, "Invert", 3), ValueError, "takes no argument, not 3"),
        (lambda: apply_op(SQUARES, "Posterize", 0), ValueError, "from 1 to 8"),
        (lambda: apply_op(SQUARES, "Rotate"), ValueError, "not None"),
        (lambda: apply_op(SQUARES, "Invert", backend="gpu"), ValueError, "auto, cuda, cpu, kornia"),
        (lambda: apply_op(SQUARES, "Invert", backend="cuda"), ValueError, "move them first"),
        (lambda: apply_op(SQUARES[:, :4], "Rotate90"), ValueError, "square images, not 4x8"),
        (lambda: apply_op(np.zeros((1, 1, 32768, 3), np.uint8), "FlipLR"), ValueError, "32767"),
        (lambda: apply_op(SQUARES, "Invert", out=SQUARES), ValueError, "overlaps"),
        (lambda: apply_op(SQUARES, "Invert", out=SQUARES[:1].copy()), ValueError, "out holds 1"),
        (lambda: apply_op(SQUARES, "Invert", out=np.zeros((2, 8, 16, 3), np.uint8)[:, :, ::2]),
         ValueError, "out must be contiguous"),
        (lambda: apply_op(SQUARES, "Invert", out=np.frombuffer(bytes(384), np.uint8)
                          .reshape(SQUARES.shape)), ValueError, "out .* is read-only"),
        (lambda: apply_op(SQUARES, "Invert", out=torch.zeros(2, 8, 8, 3, dtype=torch.uint8)),
         ValueError, "out is a torch array"),
        (lambda: augment(SQUARES, [0, 52], SPACE), ValueError, "index 52 is outside.*0 to 51"),
        (lambda: augment(SQUARES, [-2], SPACE), ValueError, "index -2"),
        (lambda: augment(SQUARES, [0.5], SPACE), ValueError, "candidate indices"),
        (lambda: augment(SQUARES, 3, SPACE), ValueError, "candidate indices"),
        (lambda: augment(SQUARES, [[0, 1]] * 3, SPACE), ValueError, "3 policies for 2 images"),
        (lambda: augment(SQUARES, [0], SPACE, samples=[1]), ValueError, "2 whole numbers"),
        (lambda: versions(SQUARES, [0, 1], SPACE), ValueError, r"shape \(L, N\)"),
        (lambda: versions(list(SQUARES), [[0]], SPACE), TypeError, "not a list"),
        (lambda: versions(SQUARES, [[0]], SPACE, out=SQUARES), ValueError, r"\(2, 2, 8, 8, 3\)"),
    ],
)  # fmt: skip
def test_wrong_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_nothing_is_written_when_the_call_is_refused():
    out = np.full_like(SQUARES, 7)
    with pytest.raises(ValueError, match="outside"):
        augment(SQUARES, [1, 99], SPACE, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("fill", [0, 128])
@pytest.mark.parametrize("size", [(24, 24), (17, 29)], ids=str)
def test_the_torch_back_end_returns_pillows_bytes(size, fill):
    space = replace(SearchSpace.preset("imagenet"), fill=fill)
    rng = np.random.default_rng(4)
    images = oracle.patterns(*size, seed=3)[:2].repeat(20, axis=0)
    policies = rng.integers(-1, len(space), (40, 2))
    got = augment(torch.from_numpy(images), policies, space, seed=9, backend="kornia")
    want = oracle.augment(images, policies, space, seed=9)
    for i in range(len(images)):
        assert (got[i].numpy() == want[i]).all(), f"image {i}, policy {policies[i]}"


def test_importing_costs_next_to_nothing():
    code = (
        "import sys, ddas_gpu; "
        "heavy = {'torch', 'nvidia', 'cupy', 'kornia', 'numpy', 'PIL'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
