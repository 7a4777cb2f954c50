"""Transforms that move boxes and masks along with the image."""

from __future__ import annotations

from enum import Enum

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

from ddas_gpu import BoxPolicyTransform, PolicySchedule, PolicyTransform, SearchSpace, streams
from ddas_gpu.ops.box_policies import augment_boxes

# --- stand-ins for torchvision.tv_tensors, with the attributes that it sets on its tensors --------


class BoundingBoxFormat(Enum):
    XYXY = "XYXY"
    XYWH = "XYWH"
    CXCYWH = "CXCYWH"
    XYXYR = "XYXYR"


class TVTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **kwargs or {})  # results are plain tensors, as torchvision's


class Image(TVTensor):
    pass


class Mask(TVTensor):
    pass


class KeyPoints(TVTensor):
    pass


class BoundingBoxes(TVTensor):
    pass


def boxes_of(rows, form, size):
    boxes = torch.as_tensor(rows).as_subclass(BoundingBoxes)
    boxes.format, boxes.canvas_size = form, size
    return boxes


SIZE = (40, 50)
# Every op that moves pixels, without those that lose the square below.
MOVING = SearchSpace.of(["FlipLR", "FlipUD", "Rotate", "ShearX", "TranslateY"], [3], depth=2)
SCHEDULE = PolicySchedule(MOVING, [1.0], [[1 / len(MOVING)] * len(MOVING)])


def square(top=10, left=14, side=16):
    image = np.zeros((*SIZE, 3), np.uint8)
    image[top : top + side, left : left + side] = 255
    box = np.array([[left, top, left + side, top + side]], float)
    return image, box


@pytest.mark.parametrize("index", range(12))
def test_boxes_and_masks_stay_on_their_object(index):
    image, box = square()
    tensor = torch.from_numpy(image).permute(2, 0, 1).as_subclass(Image)
    mask = torch.from_numpy(image[None, :, :, 0] > 0).as_subclass(Mask)
    transform = PolicyTransform(SCHEDULE, 1)
    found, target = transform(
        tensor,
        {"boxes": boxes_of(box, BoundingBoxFormat.XYXY, SIZE), "masks": mask, "id": 5},
        index=index,
    )
    assert type(found) is Image and target["id"] == 5
    white = found.numpy()[0] > 0
    np.testing.assert_array_equal(target["masks"].numpy()[0], white)
    assert type(target["masks"]) is Mask and target["masks"].dtype == torch.bool
    rows, columns = np.flatnonzero(white.any(1)), np.flatnonzero(white.any(0))
    around = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    moved = target["boxes"]
    assert type(moved) is BoundingBoxes and moved.format is BoundingBoxFormat.XYXY
    assert moved.canvas_size == SIZE and moved.dtype == torch.float64
    np.testing.assert_allclose(moved.numpy()[0], around, atol=3.5)  # of the corners it had
    plain = transform(np.ascontiguousarray(image), index=index)
    np.testing.assert_array_equal(found.permute(1, 2, 0).numpy(), plain)


@pytest.mark.parametrize("form", ["XYWH", "CXCYWH"])
def test_boxes_keep_their_format(form):
    image, (box,) = square()
    x, y, side = box[0], box[1], box[2] - box[0]
    given = {"XYWH": [x, y, side, side], "CXCYWH": [x + side / 2, y + side / 2, side, side]}[form]
    flip = PolicySchedule(SearchSpace.of(["FlipLR"], depth=1), [1.0], [[1.0]])
    boxes = boxes_of([given], BoundingBoxFormat[form], SIZE)
    _, moved = PolicyTransform(flip, 1)(Pillow.fromarray(image), boxes)
    left = SIZE[1] - box[2]
    expected = {"XYWH": [left, y, side, side], "CXCYWH": [left + 8, y + 8, side, side]}[form]
    np.testing.assert_allclose(moved.numpy(), [expected])


def test_boxes_that_leave_the_image_become_empty():
    image, box = square(top=0, left=0, side=6)
    shift = PolicySchedule(SearchSpace.of(["TranslateX"], [10], depth=1), [1.0], [[1.0]])
    boxes = boxes_of(np.concatenate([box, box + 30]), BoundingBoxFormat.XYXY, (60, 60))
    image = np.pad(image, ((0, 20), (0, 10), (0, 0)))
    for index in range(10):
        found, moved = PolicyTransform(shift, 1)(Pillow.fromarray(image), boxes, index=index)
        sides = (moved[:, 2:] - moved[:, :2]).numpy()
        assert len(moved) == 2 and sides[1].min() == 6
        assert (sides[0] == 0).all() == (np.asarray(found).max() == 0)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int16, torch.int64, torch.float32, torch.bfloat16]
)
def test_masks_of_any_type(dtype):
    shape = (2, 5, *SIZE)
    values = torch.from_numpy(np.random.default_rng(0).integers(0, 120, shape)).to(dtype)
    values = values * 257 if dtype == torch.int64 else values
    flip = PolicySchedule(SearchSpace.of(["FlipUD"], depth=1), [1.0], [[1.0]])
    image, _ = square()
    _, moved = PolicyTransform(flip, 1)(Pillow.fromarray(image), values.as_subclass(Mask))
    assert moved.dtype == dtype and torch.equal(moved.as_subclass(torch.Tensor), values.flip(-2))


def test_ops_on_colours_leave_masks_alone():
    image, _ = square()
    invert = PolicySchedule(SearchSpace.of(["Invert"], depth=1), [1.0], [[1.0]])
    mask = torch.from_numpy(image[:, :, 0].copy()).as_subclass(Mask)
    found, kept = PolicyTransform(invert, 1)(Pillow.fromarray(image), mask)
    np.testing.assert_array_equal(np.asarray(found), 255 - image)
    assert torch.equal(kept.as_subclass(torch.Tensor), mask.as_subclass(torch.Tensor))


def test_what_cannot_be_moved_is_refused():
    image, box = square()
    points = torch.zeros(1, 2).as_subclass(KeyPoints)
    with pytest.raises(TypeError, match="KeyPoints cannot be augmented"):
        PolicyTransform(SCHEDULE, 1)(Pillow.fromarray(image), points)
    rotated = boxes_of(box, BoundingBoxFormat.XYXYR, SIZE)
    with pytest.raises(ValueError, match="boxes are XYXY, XYWH or CXCYWH, not XYXYR"):
        PolicyTransform(SCHEDULE, 1)(Pillow.fromarray(image), rotated)


@pytest.mark.parametrize(
    "transform", [PolicyTransform(SCHEDULE, 1), BoxPolicyTransform(SCHEDULE, 1)]
)
def test_boxes_of_an_image_of_another_size_are_refused(transform):
    image, box = square()
    boxes = boxes_of(box, BoundingBoxFormat.XYXY, (80, 100))
    with pytest.raises(ValueError, match=r"for an image of \(80, 100\) .* with one of \(40, 50\)"):
        transform(image, boxes, [1])


def test_masks_of_another_size_are_refused():
    image, _ = square()
    mask = torch.ones(1, 20, 25).as_subclass(Mask)
    with pytest.raises(ValueError, match=r"Mask for an image of \(20, 25\) .* one of \(40, 50\)"):
        PolicyTransform(SCHEDULE, 1)(image, mask)
    kept = torch.ones(0, 20, 25).as_subclass(Mask)  # of an image without objects
    assert PolicyTransform(SCHEDULE, 1)(image, kept)[1].shape == (0, 20, 25)


def test_a_policy_for_boxes_needs_them():
    image, box = square()
    transform = PolicyTransform(BOXES, 1)
    transform(image, boxes_of(box, BoundingBoxFormat.XYXY, SIZE))
    with pytest.raises(
        ValueError, match="needs boxes, as tv_tensors.BoundingBoxes .* or use BoxPol"
    ):
        transform(image)


# --- BoxPolicyTransform ---------------------------------------------------------------------------

COCO = SearchSpace.preset("coco")
BOXES = PolicySchedule(COCO, [0.5, 1.0], np.random.default_rng(0).dirichlet(np.ones(len(COCO)), 2))


def scene(number):
    generator = np.random.default_rng(number)
    image = generator.integers(0, 256, (60, 80, 3), np.uint8)
    corners = generator.random((5, 2, 2)) * (80, 60)
    return image, np.concatenate([corners.min(1), corners.max(1)], axis=1), np.arange(10, 15)


@pytest.mark.parametrize("epoch", [0, 1])
def test_it_is_what_the_pipelines_do_to_the_sample_of_that_index(epoch):
    transform = BoxPolicyTransform(BOXES, epochs=2, seed=4)
    transform.set_epoch(epoch)
    dropped = 0
    for index in range(30):
        image, boxes, labels = scene(index)
        policies = BOXES.draw(epoch, 2, 4, np.array([index]))
        key = streams.sign_key(4, epoch)
        expected = augment_boxes([image], [boxes], [labels], policies, COCO, key, samples=[index])
        found = transform(image, boxes, labels, index=index)
        for one, (other,) in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        dropped += 5 - len(found[2])
    assert dropped > 0


def test_all_kinds_come_back_as_they_came():
    transform = BoxPolicyTransform(BOXES, epochs=1)
    for number in range(10):
        image, boxes, labels = scene(number)
        expected = transform(image, boxes, labels)
        picture, rows, names = transform(Pillow.fromarray(image), boxes.tolist(), labels.tolist())
        np.testing.assert_array_equal(np.asarray(picture), expected[0])
        np.testing.assert_array_equal(np.reshape(rows, (-1, 4)), expected[1])
        assert names == expected[2].tolist()
        tensor = torch.from_numpy(image).permute(2, 0, 1)
        pixels, rows, names = transform(
            tensor, boxes_of(boxes, BoundingBoxFormat.XYXY, (60, 80)), torch.from_numpy(labels)
        )
        np.testing.assert_array_equal(pixels.permute(1, 2, 0).numpy(), expected[0])
        np.testing.assert_array_equal(rows.numpy(), expected[1])
        assert type(rows) is BoundingBoxes and torch.equal(names, torch.from_numpy(expected[2]))


def test_labels_must_fit_the_boxes():
    image, boxes, labels = scene(0)
    with pytest.raises(ValueError, match="5 boxes, but 4 labels"):
        BoxPolicyTransform(BOXES, 1)(image, boxes, labels[:4])


def test_no_boxes():
    image, boxes, labels = scene(0)
    _, boxes, labels = BoxPolicyTransform(BOXES, 1)(image, boxes[:0], labels[:0])
    assert boxes.shape == (0, 4) and labels.shape == (0,)
