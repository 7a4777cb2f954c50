"""The standard transforms, before the policy (uint8) and after it (tensors)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddas_gpu.data import Normalise, cutout_holes
from ddas_gpu.data.clean import AsTheyAre, CentreCrop, PadCropFlip, ResizedCropFlip, random_box

IMAGES = np.random.default_rng(0).integers(1, 256, (40, 8, 10, 3), np.uint8)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(padding=st.integers(0, 5), flip=st.booleans(), seed=st.integers(0, 99))
def test_pad_crop_flip_is_a_shift_and_perhaps_a_mirror(padding, flip, seed):
    result = PadCropFlip(padding, flip)(IMAGES[:4], rng(seed))
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
    mirrored = (PadCropFlip(0, True)(images, rng()) == IMAGES[0, :, ::-1]).all((1, 2, 3))
    assert 0.45 < mirrored.mean() < 0.55
    shifted = PadCropFlip(1, False)(images, rng())
    assert len(np.unique(shifted.reshape(4000, -1), axis=0)) == 9


def test_without_padding_and_flip_images_stay():
    np.testing.assert_array_equal(PadCropFlip(0, False)(IMAGES, rng()), IMAGES)
    np.testing.assert_array_equal(AsTheyAre()(IMAGES, rng()), IMAGES)


@given(st.integers(1, 80), st.integers(1, 80), st.integers(0, 99))
def test_random_boxes_lie_in_the_image(height, width, seed):
    left, top, right, bottom = random_box((height, width), rng(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


def test_resized_crop_of_images_of_any_size():
    images = [np.full((h, w, 3), 9, np.uint8) for h, w in ((30, 90), (8, 8), (70, 20))]
    for transform in (ResizedCropFlip(16, True), CentreCrop(16)):
        result = transform(images, rng())
        assert result.shape == (3, 16, 16, 3)
        assert (result == 9).all()  # all inside, no border


def test_resized_crop_varies_with_the_generator_and_nothing_else():
    crop = ResizedCropFlip(8, True)
    np.testing.assert_array_equal(crop(IMAGES, rng(1)), crop(IMAGES, rng(1)))
    assert (crop(IMAGES, rng(1)) != crop(IMAGES, rng(2))).any()


def test_centre_crop_takes_the_middle():
    image = np.zeros((64, 64, 3), np.uint8)
    image[4:60, 4:60] = 200  # 56 = 64 · 224/256
    assert (CentreCrop(56)([image], rng()) == 200).all()


def test_normalised_training_images_have_mean_0_and_deviation_1():
    normalised = Normalise(IMAGES)(torch.from_numpy(IMAGES))
    assert normalised.shape == (40, 3, 8, 10)
    assert normalised.dtype == torch.float32
    assert normalised.mean((0, 2, 3)).abs().max() < 1e-5
    assert (normalised.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-5


def test_normalise_takes_lists_any_leading_axes_and_constant_channels():
    flat = [np.full((4, 5, 3), 7, np.uint8), np.full((2, 9, 3), 7, np.uint8)]
    batch = torch.full((2, 3, 6, 6, 3), 7, dtype=torch.uint8)
    assert torch.equal(Normalise(flat)(batch), torch.zeros(2, 3, 3, 6, 6))


@pytest.mark.parametrize("side", [1, 4, 16])
def test_holes_are_squares_around_a_pixel_cut_at_the_border(side):
    holes = cutout_holes(900, 12, 9, side, rng())
    assert holes.shape == (900, 1, 12, 9)
    for hole in holes[:, 0].numpy():
        rows, columns = np.flatnonzero(hole.any(1)), np.flatnonzero(hole.any(0))
        assert hole.sum() == len(rows) * len(columns) > 0
        assert (np.diff(rows) == 1).all() and (np.diff(columns) == 1).all()
        assert len(rows) <= side and len(columns) <= side
    if side == 1:  # every pixel can be the centre
        assert holes.any(0).all()


@pytest.mark.parametrize(
    "transform",
    [PadCropFlip(2, True), ResizedCropFlip(8, True), CentreCrop(8), AsTheyAre()],
    ids=lambda transform: type(transform).__name__,
)
@given(start=st.integers(0, 11), count=st.integers(1, 12), seed=st.integers(0, 99))
def test_rows_of_a_batch_are_made_as_in_the_whole_batch(transform, start, count, seed):
    rows = slice(start, start + count)
    whole = transform(IMAGES[:12], rng(seed))
    np.testing.assert_array_equal(transform(IMAGES[:12], rng(seed), rows), whole[rows])
