"""The node does to a batch what was ordered for it."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from ddas_gpu import SearchSpace, augment
from ddas_gpu.ops import augment_boxes
from ddas_gpu.ops.box_policies import plan_boxes
from ddas_gpu.pipelines.policy_node import (
    BoxPolicyNode,
    DrawnPolicies,
    PolicyNode,
    Problems,
    as_one_array,
)

SPACE = SearchSpace.preset("cifar")


def make_order(count: int, seed: int) -> DrawnPolicies:
    generator = np.random.default_rng(seed)
    policies = generator.integers(-1, len(SPACE), (count, 2))
    return DrawnPolicies(policies, seed, generator.integers(0, 1000, count))


def test_orders_are_carried_out_in_turn_for_every_layout_of_memory():
    generator = np.random.default_rng(0)
    node = PolicyNode(SPACE, Problems(), deque())
    together = generator.integers(0, 256, (5, 9, 8, 3), np.uint8)
    apart = [np.array(image) for image in generator.integers(0, 256, (4, 9, 8, 3), np.uint8)]
    mixed = [generator.integers(0, 256, (6 + i, 8, 3), np.uint8) for i in range(3)]
    batches = [list(together), apart, mixed, list(together[::-1])]
    orders = [make_order(len(batch), seed) for seed, batch in enumerate(batches)]
    node.drawn.extend(orders)
    for batch, (policies, key, samples) in zip(batches, orders, strict=True):
        found = [np.array(image) for image in node(batch)]
        expected = augment(batch, policies, SPACE, key, samples=samples)
        assert all((a == b).all() for a, b in zip(found, expected, strict=True))
    assert not node.problems and not node.drawn


def test_boxes_planned_ahead_and_pixels_later_are_the_same_as_both_at_once():
    generator, space = np.random.default_rng(1), SearchSpace.preset("coco")
    images = [generator.integers(0, 256, (20 + i, 30, 3), np.uint8) for i in range(6)]
    boxes = [np.array([[2, 3, 20, 12], [10, 4, 28, 18]], float)] * 6
    labels = [np.array([4, 5])] * 6
    policies, samples = generator.integers(-1, len(space), (6, 2)), np.arange(6) + 40
    sizes = [image.shape[:2] for image in images]
    options = {"samples": samples}
    plans = plan_boxes(sizes, boxes, labels, policies, space, 9, **options)
    expected = augment_boxes(images, boxes, labels, policies, space, 9, **options)
    node = BoxPolicyNode(space, Problems(), deque())
    node.drawn.append(plans.steps)
    found = (node(images), plans.boxes, plans.labels)
    for mine, yours in zip(found, expected, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(mine, yours, strict=True))
    assert not node.problems


def test_neighbouring_images_become_one_array_without_a_copy():
    batch = np.zeros((3, 4, 5, 3), np.uint8)
    one = as_one_array(list(batch))
    assert one.shape == batch.shape and np.shares_memory(one, batch)
    for apart in (list(batch[::-1]), list(batch[:, :, ::-1]), [batch[0], batch[2]]):
        assert isinstance(as_one_array(apart), list)


class FakeCupy:
    """What the node uses of a CuPy array: the place of its bytes, not the bytes."""

    __module__ = "cupy"

    def __init__(self, shape, dtype, memptr):
        self.shape, self.dtype, self.data = tuple(shape), np.dtype(dtype), memptr
        height, width, channels = self.shape[-3:]
        self.strides = (width * channels, channels, 1)
        if len(self.shape) == 4:
            self.strides = (height * width * channels, *self.strides)


def test_neighbouring_images_on_a_gpu_become_one_array():
    """Of 256 images one array is described once, not 256 arrays one by one."""

    def images(addresses):
        return [FakeCupy((4, 5, 3), np.uint8, SimpleNamespace(ptr=place)) for place in addresses]

    together = images(range(1000, 1000 + 60 * 256, 60))
    one = as_one_array(together)
    assert (one.shape, one.strides, one.data.ptr) == ((256, 4, 5, 3), (60, 15, 3, 1), 1000)
    for apart in (images([1000, 1061]), images([1060, 1000])):
        assert as_one_array(apart) is apart


def test_a_problem_is_noted_and_the_images_are_left_alone():
    node = PolicyNode(SPACE, Problems(), deque())
    images = [np.zeros((4, 4, 3), np.uint8)]
    node.drawn.append(DrawnPolicies(np.array([[999, 0]]), 0, np.array([0])))
    assert node(images) is images
    for _ in range(2):
        with pytest.raises(ValueError, match="policy index 999 is outside the space"):
            node.problems.raise_first()
