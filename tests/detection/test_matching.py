"""What each anchor is to predict."""

from __future__ import annotations

import numpy as np
import torch

from ddas_gpu.detection.boxes import decode
from ddas_gpu.detection.losses import BACKGROUND, IGNORED, match, targets_for
from ddas_gpu.models.retinanet import anchors_for

# Four anchors of 10 × 10 that begin at x = 0, 2, 4 and 30.
ANCHORS = torch.tensor([[float(x), 0.0, x + 10.0, 10.0] for x in (0, 2, 4, 30)])


def test_by_overlap():
    """With the box at x = 0 they overlap by 1, 8/12, 6/14 and 0."""
    classes, deltas = match(ANCHORS, ANCHORS[:1], torch.tensor([7]))
    assert classes.tolist() == [7, 7, IGNORED, BACKGROUND]
    torch.testing.assert_close(decode(deltas[:2], ANCHORS[:2]), ANCHORS[:1].expand(2, 4))
    assert not deltas[2:].any()


def test_every_box_gets_its_best_anchor_however_small_it_is():
    tiny = torch.tensor([[31.0, 1.0, 32.0, 2.0]])
    classes, deltas = match(ANCHORS, tiny, torch.tensor([3]))
    assert classes.tolist() == [BACKGROUND, BACKGROUND, BACKGROUND, 3]
    torch.testing.assert_close(decode(deltas[3:], ANCHORS[3:]), tiny)


def test_a_box_keeps_its_best_anchor_against_a_box_that_overlaps_it_more():
    """The small box overlaps the first anchor little, but no other at all."""
    boxes = torch.tensor([[0.0, 0.0, 11.0, 10.0], [0.0, 0.0, 1.0, 1.0]])
    classes, _ = match(ANCHORS[[0, 3]], boxes, torch.tensor([1, 2]))
    assert classes.tolist() == [1, BACKGROUND]  # the same best anchor: the first box has it
    classes, _ = match(ANCHORS[[0, 3]], boxes.flip(0), torch.tensor([2, 1]))
    assert classes.tolist() == [2, BACKGROUND]


def test_a_box_that_overlaps_no_anchor_claims_none():
    far = torch.tensor([[100.0, 100.0, 110.0, 110.0]])
    assert match(ANCHORS, far, torch.tensor([0]))[0].tolist() == [BACKGROUND] * 4


def test_images_without_boxes_are_background():
    targets = targets_for(ANCHORS, [np.zeros((0, 4))], [np.zeros(0, np.int64)])
    assert targets["classes"].tolist() == [[BACKGROUND] * 4]
    assert not targets["deltas"].any()


def test_targets_hold_every_box_of_the_batch():
    generator = np.random.default_rng(0)
    corner = generator.uniform(0, 60, (2, 5, 2))
    boxes = np.concatenate([corner, corner + generator.uniform(20, 60, (2, 5, 2))], 2)
    labels = np.arange(10).reshape(2, 5)
    anchors = anchors_for(128, 128)
    targets = targets_for(anchors, list(boxes), list(labels))
    for i in range(2):
        for box, label in zip(boxes[i], labels[i], strict=True):
            mine = targets["classes"][i] == label
            assert mine.any()
            found = decode(targets["deltas"][i][mine], anchors[mine])
            expected = torch.from_numpy(box).float().expand_as(found)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
