"""Batches of images with boxes: resized, flipped, turned, padded; boxes follow the pixels."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddas_gpu.data.coco import open_coco
from ddas_gpu.detection import DetectionSet, network_inputs, padded_size
from ddas_gpu.detection.batches import DEVIATION, MEAN
from ddas_gpu.detection.transforms import KeepRatio, Square, flipped, resized, turned


def white_box(height: int, width: int, box: tuple[int, ...]) -> np.ndarray:
    image = np.zeros((height, width, 3), np.uint8)
    image[box[1] : box[3], box[0] : box[2]] = 255
    return image


def box_of(image: np.ndarray) -> list[int]:
    """The box around what is white."""
    rows, columns = np.nonzero(image[..., 0] > 127)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


@st.composite
def images_with_boxes(draw):
    height, width = draw(st.integers(8, 40)), draw(st.integers(8, 40))
    x0, y0 = draw(st.integers(0, width - 2)), draw(st.integers(0, height - 2))
    box = (x0, y0, draw(st.integers(x0 + 1, width)), draw(st.integers(y0 + 1, height)))
    return white_box(height, width, box), np.array([box], float)


@given(images_with_boxes())
def test_boxes_are_flipped_and_turned_with_the_pixels(example):
    for move in (flipped, turned):
        image, boxes = move(*example)
        assert boxes.tolist() == [box_of(image)]


@given(images_with_boxes(), st.integers(2, 4))
def test_boxes_grow_with_the_pixels(example, factor):
    height, width = example[0].shape[:2]
    sides = KeepRatio(factor * min(height, width), factor * max(height, width))
    image, boxes = resized(*example, sides)
    assert image.shape == (factor * height, factor * width, 3)
    np.testing.assert_allclose(boxes, [box_of(image)], atol=1)


def test_sizes():
    coco = KeepRatio(800, 1333)
    assert coco.new_size(480, 640) == (800, 1067)
    assert coco.new_size(640, 480) == (1067, 800)
    assert coco.new_size(200, 640) == (417, 1333)  # the longer side decides
    assert Square(128).new_size(480, 640) == (128, 128)


@pytest.fixture(scope="module")
def coco(coco_root):
    return open_coco(coco_root)


def test_a_batch_is_a_pure_function_of_its_generator(coco):
    some = DetectionSet(coco.images, coco.class_names, Square(64), flip=True)
    indices = np.array([3, 1, 7, 8, 20, 30])
    one, again = (some.batch(indices, np.random.default_rng(5)) for _ in range(2))
    plain = DetectionSet(coco.images, coco.class_names, Square(64)).batch(
        indices, np.random.default_rng(5)
    )
    mirrored = 0
    for i in range(len(indices)):
        assert np.array_equal(one.images[i], again.images[i])
        assert np.array_equal(one.boxes[i], again.boxes[i])
        if np.array_equal(one.images[i], plain.images[i]):
            assert np.array_equal(one.boxes[i], plain.boxes[i])
        else:
            image, boxes = flipped(plain.images[i], plain.boxes[i])
            assert np.array_equal(one.images[i], image) and np.array_equal(one.boxes[i], boxes)
            mirrored += 1
    assert 0 < mirrored < len(indices)


def test_turned_sets_turn_images_with_their_boxes(coco):
    some = DetectionSet(coco.images, coco.class_names, Square(64))
    indices, generator = np.array([0, 5]), np.random.default_rng(0)
    plain, rotated = some.batch(indices, generator), some.turned().batch(indices, generator)
    for i in range(2):
        image, boxes = turned(plain.images[i], plain.boxes[i])
        assert np.array_equal(rotated.images[i], image)
        assert np.array_equal(rotated.boxes[i], boxes)


def test_fingerprints_tell_sets_apart(coco):
    whole = DetectionSet(coco.images, coco.class_names, Square(64))
    part = DetectionSet(coco.images[:-1], coco.class_names, Square(64))
    assert whole.fingerprint() == whole.fingerprint() != part.fingerprint()


def test_network_inputs_are_normalised_and_padded(coco):
    some = DetectionSet(coco.images, coco.class_names, KeepRatio(48, 80))
    examples = some.batch(np.arange(4), np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inputs = network_inputs(examples.images)
    height, width = padded_size(examples.images)
    assert inputs.shape == (4, 3, height, width)
    assert height % 32 == width % 32 == 0
    for tensor, image in zip(inputs, examples.images, strict=True):
        rows, columns = image.shape[:2]
        inside = (image.astype(np.float64) - MEAN) / DEVIATION
        expected = torch.from_numpy(inside).movedim(-1, 0).float()
        torch.testing.assert_close(tensor[:, :rows, :columns], expected)
        assert not tensor[:, rows:].any() and not tensor[:, :, columns:].any()
