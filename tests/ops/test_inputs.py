"""Model inputs in one pass are those of the separate steps, bit by bit, on every back end."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from harness.bank import bank_kernels, bank_on
from hypothesis import given, settings
from hypothesis import strategies as st

from ddas_gpu import SearchSpace, augment
from ddas_gpu.ops import augment_boxes, inputs
from ddas_gpu.ops.box_policies import plan_boxes
from ddas_gpu.pipelines import pixels

SPACE = SearchSpace.preset("imagenet")
BOXES = SearchSpace.preset("coco")


@dataclass(frozen=True)
class Wanted:
    layout: str = "NCHW"
    dtype: str = "float32"
    mean: tuple[float, ...] = (123.675, 116.28, 103.53)
    std: tuple[float, ...] = (58.395, 57.12, 57.375)


FORMATS = [
    Wanted(layout, d) for layout in ("NCHW", "NHWC") for d in ("float32", "float16", "bfloat16")
]


@pytest.fixture(params=["cpu", "cuda", "torch"], ids=lambda name: f"on_{name}")
def backend(request):
    """The CPU target, the CUDA sources on the host with the race check, and torch."""
    if request.param != "cuda":
        yield {"cpu": "cpu", "torch": "kornia"}[request.param]
        return
    with bank_on(bank_kernels(order="shuffled", racecheck=True)):
        yield "cpu"


def some_images(rng, count, height, width) -> torch.Tensor:
    return torch.from_numpy(rng.integers(0, 256, (count, height, width, 3), np.uint8))


def finished(images: torch.Tensor, wanted: Wanted, corners=None, side=0) -> torch.Tensor:
    """The separate steps: normalise, cut holes, layout and type."""
    result = pixels.normalise(images, wanted.mean, wanted.std)
    if corners is not None:
        pixels.cut_holes(result, corners, side)
    if wanted.layout == "NHWC":
        result = result.permute(0, 2, 3, 1)
    return result.to(getattr(torch, wanted.dtype)).contiguous()


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """torch.equal takes -0.0 for 0.0."""
    word = inputs.WORDS[one.element_size()]
    alike = one.shape == other.shape and one.dtype == other.dtype and one.is_contiguous()
    return alike and torch.equal(one.view(word), other.contiguous().view(word))


@pytest.mark.parametrize("wanted", FORMATS, ids=lambda w: f"{w.layout}-{w.dtype}")
@pytest.mark.parametrize("size", [(1, 1), (7, 3), (18, 35), (33, 17)], ids=str)
def test_one_pass_is_the_separate_steps(backend, wanted, size):
    rng = np.random.default_rng(1)
    images = some_images(rng, 12, *size)
    policies = rng.integers(-1, len(SPACE), (12, 3))
    policies[:3] = -1  # nothing to do
    policies[3:6, 1:] = -1
    samples, corners = rng.integers(0, 99, 12), rng.integers(-6, 30, (12, 2))
    request = SPACE.request(policies, len(images), 5, samples)
    got = inputs.inputs_of(images, wanted, request, holes=corners, side=6, backend=backend)
    want = finished(augment(images, policies, SPACE, 5, samples=samples), wanted, corners, 6)
    assert same_bits(got, want)
    assert same_bits(inputs.inputs_of(images, wanted, backend=backend), finished(images, wanted))


def test_every_byte_in_every_channel(backend):
    levels = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16, 1).repeat(1, 1, 1, 3)
    for wanted in FORMATS:
        got = inputs.inputs_of(levels, wanted, backend=backend)
        assert same_bits(got, finished(levels, wanted))


@given(seed=st.integers(0, 2**32), depth=st.integers(1, 3))
@settings(max_examples=25)
def test_images_with_boxes_of_many_sizes(seed, depth):
    check_boxes("cpu", seed, depth)
    check_boxes("kornia", seed, depth)


@pytest.mark.parametrize("order", ["forward", "reverse", "racecheck"])
def test_images_with_boxes_on_the_cuda_kernels(order):
    racecheck = order == "racecheck"
    kernels = bank_kernels(order="shuffled" if racecheck else order, racecheck=racecheck)
    check_boxes("cpu", 3, 3, bank_on(kernels))


def check_boxes(backend, seed, depth, where=None):
    rng = np.random.default_rng(seed)
    sizes = [tuple(map(int, rng.integers(1, 45, 2))) for _ in range(9)]
    images = [torch.from_numpy(rng.integers(0, 256, (*size, 3), np.uint8)) for size in sizes]
    corners = [rng.random((2, 2, 2)) * size[::-1] for size in sizes]
    boxes = [np.concatenate([c.min(axis=1), c.max(axis=1)], axis=1) for c in corners]
    task = (boxes, [np.arange(2)] * 9, rng.integers(-1, len(BOXES), (9, depth)), BOXES, seed)
    steps, size = plan_boxes(sizes, *task).steps, pixels.common_size(sizes)
    changed = augment_boxes(images, *task)[0]
    with where or nullcontext():
        found = [
            inputs.padded_inputs(images, wanted, size, steps, BOXES.fill, backend=backend)
            for wanted in FORMATS
        ]
    for wanted, got in zip(FORMATS, found, strict=True):
        want = pixels.normalise_and_pad(changed, wanted.mean, wanted.std)
        if wanted.layout == "NHWC":
            want = want.permute(0, 2, 3, 1)
        assert same_bits(got, want.to(getattr(torch, wanted.dtype)))


def test_rows_that_lie_apart_are_read_in_place(backend):
    rng = np.random.default_rng(2)
    view = some_images(rng, 4, 20, 30)[:, 2:15, 5:29]
    policies = rng.integers(-1, len(SPACE), (4, 2))
    got = inputs.inputs_of(view, FORMATS[0], SPACE.request(policies, 4), backend=backend)
    assert same_bits(got, finished(augment(view, policies, SPACE), FORMATS[0]))


def test_an_empty_batch(backend):
    none = torch.zeros(0, 8, 8, 3, dtype=torch.uint8)
    got = inputs.inputs_of(none, FORMATS[0], SPACE.request([1], 0), backend=backend)
    assert got.shape == (0, 3, 8, 8)


def test_one_launch(monkeypatch):
    kernels = bank_kernels(only="inputs")
    launched, launch = [], kernels.launch

    def record(name, *others):
        launched.append(name)
        launch(name, *others)

    monkeypatch.setattr(kernels, "launch", record)
    images = some_images(np.random.default_rng(0), 3, 9, 9)
    with bank_on(kernels):
        inputs.inputs_of(images, FORMATS[0], SPACE.request([3, 4], 3))
    assert launched == ["inputs"]


@pytest.mark.gpu
@pytest.mark.parametrize("wanted", FORMATS, ids=lambda w: f"{w.layout}-{w.dtype}")
def test_a_gpu_returns_the_bits_of_the_cpu(wanted):
    rng = np.random.default_rng(3)
    images = some_images(rng, 64, 40, 50)
    policies, corners = rng.integers(-1, len(SPACE), (64, 3)), rng.integers(-6, 40, (64, 2))
    task = (wanted, SPACE.request(policies, 64, 7))
    got = inputs.inputs_of(images.cuda(), *task, holes=corners, side=9)
    assert same_bits(got.cpu(), inputs.inputs_of(images, *task, holes=corners, side=9))
    sizes = [tuple(map(int, rng.integers(1, 45, 2))) for _ in range(9)]
    boxed = [torch.from_numpy(rng.integers(0, 256, (*size, 3), np.uint8)) for size in sizes]
    boxes, labels = [[[0, 0, width, height]] for height, width in sizes], [[1]] * 9
    choices = rng.integers(-1, len(BOXES), (9, 2))
    steps = plan_boxes(sizes, boxes, labels, choices, BOXES, 2).steps
    task = (wanted, pixels.common_size(sizes), steps, BOXES.fill)
    got = inputs.padded_inputs([image.cuda() for image in boxed], *task)
    assert same_bits(got.cpu(), inputs.padded_inputs(boxed, *task))
