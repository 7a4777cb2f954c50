"""The standard transform on the host, before the policy (uint8) and after it (tensors)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddas_gpu import streams
from ddas_gpu.pipelines.pixels import (
    channel_statistics,
    common_size,
    cut_holes,
    middle_part,
    moved,
    normalise,
    normalise_and_pad,
    pad_shift_flip,
    random_parts,
)
from ddas_gpu.pipelines.transform import IMAGENET_MEAN, IMAGENET_STD

IMAGES = np.random.default_rng(0).integers(1, 256, (40, 8, 10, 3), np.uint8)


def drawn(count: int, seed: int = 0, flip: bool = True) -> tuple[np.ndarray, np.ndarray]:
    return streams.crops_and_flips(seed, 0, np.arange(count), flip)


@given(padding=st.integers(0, 5), flip=st.booleans(), seed=st.integers(0, 99))
def test_pad_shift_flip_is_a_shift_and_perhaps_a_mirror(padding, flip, seed):
    result = pad_shift_flip(IMAGES[:4], *drawn(4, seed, flip), padding)
    for image, original in zip(result, IMAGES, strict=False):
        pads = ((padding, padding), (padding, padding), (0, 0))
        found = [
            np.array_equal(image, np.pad(candidate, pads)[y : y + 8, x : x + 10])
            for candidate in ([original, original[:, ::-1]] if flip else [original])
            for y in range(2 * padding + 1)
            for x in range(2 * padding + 1)
        ]
        assert any(found)


def test_flip_takes_about_half_and_shifts_go_everywhere():
    images = np.repeat(IMAGES[:1], 4000, axis=0)
    crops, flips = drawn(4000)
    mirrored = (pad_shift_flip(images, crops, flips, 0) == IMAGES[0, :, ::-1]).all((1, 2, 3))
    assert 0.45 < mirrored.mean() < 0.55
    shifted = pad_shift_flip(images, crops, np.zeros(4000, bool), 1)
    assert len(np.unique(shifted.reshape(4000, -1), axis=0)) == 9


def test_without_padding_and_flip_images_stay():
    crops, flips = drawn(40, flip=False)
    np.testing.assert_array_equal(pad_shift_flip(IMAGES, crops, flips, 0), IMAGES)


def test_parts_of_images_of_any_size():
    images = [np.full((h, w, 3), 9, np.uint8) for h, w in ((30, 90), (8, 8), (70, 20))]
    middles = np.stack([middle_part(image, (16, 16)) for image in images])
    for result in (random_parts(images, *drawn(3), (16, 16)), middles):
        assert result.shape == (3, 16, 16, 3)
        assert (result == 9).all()  # all inside, no border


def test_random_parts_vary_with_the_draws_and_nothing_else():
    images = list(IMAGES)
    one, again, other = (random_parts(images, *drawn(40, seed), (8, 8)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


@given(start=st.integers(0, 11), count=st.integers(1, 12), seed=st.integers(0, 99))
def test_what_happens_to_an_image_does_not_depend_on_its_batch(start, count, seed):
    crops, flips = drawn(24, seed)
    rows = slice(start, start + count)
    for transform in (
        lambda images, crops, flips: pad_shift_flip(images, crops, flips, 2),
        lambda images, crops, flips: random_parts(list(images), crops, flips, (8, 8)),
    ):
        whole = transform(IMAGES[:24], crops, flips)
        part = transform(IMAGES[:24][rows], crops[rows], flips[rows])
        np.testing.assert_array_equal(part, whole[rows])


def test_the_middle_part_is_the_middle():
    image = np.zeros((64, 64, 3), np.uint8)
    image[4:60, 4:60] = 200  # 56 = 64 · 224/256
    assert (middle_part(image, (56, 56)) == 200).all()


def test_normalised_training_images_have_mean_0_and_deviation_1():
    normalised = normalise(torch.from_numpy(IMAGES), *channel_statistics(IMAGES))
    assert normalised.shape == (40, 3, 8, 10)
    assert normalised.dtype == torch.float32
    assert normalised.mean((0, 2, 3)).abs().max() < 1e-5
    assert (normalised.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-5


def test_normalise_takes_any_leading_axes_and_constant_channels():
    flat = [np.full((4, 5, 3), 7, np.uint8), np.full((2, 9, 3), 7, np.uint8)]
    batch = torch.full((2, 3, 6, 6, 3), 7, dtype=torch.uint8)
    assert torch.equal(normalise(batch, *channel_statistics(flat)), torch.zeros(2, 3, 3, 6, 6))


def test_statistics_of_many_images_are_those_of_all():
    many = np.random.default_rng(1).integers(0, 256, (2100, 2, 3, 3), np.uint8)
    mean, deviation = channel_statistics(many)
    np.testing.assert_allclose(mean, many.reshape(-1, 3).mean(0))
    np.testing.assert_allclose(deviation, many.reshape(-1, 3).std(0))


@pytest.mark.parametrize("side", [1, 4, 16])
def test_holes_are_squares_around_a_pixel_cut_at_the_border(side):
    corners = streams.hole_corners(0, 0, np.arange(900), (12, 9), side)
    inputs = torch.ones(900, 3, 12, 9)
    cut_holes(inputs, corners, side)
    holes = (inputs == 0).numpy()
    assert (holes == holes[:, :1]).all()
    for hole in holes[:, 0]:
        rows, columns = np.flatnonzero(hole.any(1)), np.flatnonzero(hole.any(0))
        assert hole.sum() == len(rows) * len(columns) > 0
        assert (np.diff(rows) == 1).all() and (np.diff(columns) == 1).all()
        assert len(rows) <= side and len(columns) <= side
    if side == 1:  # every pixel can be the centre
        assert holes.any(0).all()


def test_holes_are_the_same_in_all_versions():
    inputs = torch.ones(3, 2, 3, 6, 6)
    cut_holes(inputs, np.array([[1, 2], [-2, 4]], np.float32), 3)
    expected = torch.ones(2, 3, 6, 6)
    expected[0, :, 1:4, 2:5] = 0
    expected[1, :, :1, 4:] = 0
    assert inputs.equal(expected.expand(3, -1, -1, -1, -1))


def test_images_of_different_sizes_are_normalised_and_padded():
    generator = np.random.default_rng(2)
    images = [generator.integers(0, 256, (h, w, 3), np.uint8) for h, w in ((48, 70), (33, 64))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inputs = normalise_and_pad(images, IMAGENET_MEAN, IMAGENET_STD)
    assert inputs.shape == (2, 3, *common_size([(48, 70), (33, 64)])) == (2, 3, 64, 96)
    for tensor, image in zip(inputs, images, strict=True):
        rows, columns = image.shape[:2]
        inside = (image.astype(np.float64) - IMAGENET_MEAN) / IMAGENET_STD
        expected = torch.from_numpy(inside).movedim(-1, 0).float()
        torch.testing.assert_close(tensor[:, :rows, :columns], expected)
        assert not tensor[:, rows:].any() and not tensor[:, :, columns:].any()


def test_copies_to_a_gpu_come_from_pinned_memory_and_nobody_waits(monkeypatch):
    copied = []

    def pin_memory(tensor):
        copied.append("pinned")
        return tensor

    def to(tensor, device, non_blocking=False):
        copied.append((str(device), non_blocking))
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr(torch.Tensor, "to", to)
    labels = moved(np.arange(3), "cuda:1")
    assert copied == ["pinned", ("cuda:1", True)] and labels.tolist() == [0, 1, 2]
    moved(np.arange(3), "cpu")
    assert copied[2:] == [("cpu", False)]
