"""COCO's mAP of detections made by hand, and boxes out of predictions."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ddas_gpu.data.coco import Annotated, open_coco
from ddas_gpu.detection import Detections, average_precision, detections, targets_for
from ddas_gpu.models.retinanet import anchors_for

NAMES = ("cat", "dog")


def annotated(boxes, labels, crowd=None) -> Annotated:
    boxes, labels = np.array(boxes, float).reshape(-1, 4), np.array(labels, np.int64)
    crowd = np.zeros(len(labels), bool) if crowd is None else np.array(crowd, bool)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return Annotated(Path("image.jpg"), 200, 300, boxes, labels, areas, crowd)


def found(boxes, labels, scores=None) -> Detections:
    boxes, labels = np.array(boxes, float).reshape(-1, 4), np.array(labels, np.int64)
    return Detections(boxes, np.ones(len(labels)) if scores is None else np.array(scores), labels)


TRUTH = [
    annotated([[10, 10, 60, 60], [100, 20, 180, 90]], [0, 1]),
    annotated([[0, 0, 200, 150]], [1]),
    annotated([], []),
]
PERFECT = [found(image.boxes, image.labels) for image in TRUTH]


def test_perfect_detections_have_map_1_and_nothing_is_printed(capsys):
    result = average_precision(TRUTH, PERFECT, NAMES)
    for name in ("mAP", "mAP50", "mAP75", "mAP medium", "mAP large"):
        assert result[name] == pytest.approx(1.0)
    assert math.isnan(result["mAP small"])  # there is no small box
    assert capsys.readouterr() == ("", "")


def test_perfect_detections_of_real_images(coco_root):
    coco = open_coco(coco_root, "val2017")
    perfect = [found(*image.objects()) for image in coco.images]
    assert average_precision(coco.images, perfect, coco.class_names)["mAP"] == pytest.approx(1.0)


def test_wrong_detections():
    swapped = [found(image.boxes, 1 - image.labels) for image in TRUTH]
    assert average_precision(TRUTH, swapped, NAMES)["mAP"] == 0.0
    nothing = [found([], []) for _ in TRUTH]
    assert average_precision(TRUTH, nothing, NAMES)["mAP"] == 0.0
    # One dog of two missed: half the recall, and the cat is perfect.
    half = [PERFECT[0], found([], []), found([], [])]
    assert average_precision(TRUTH, half, NAMES)["mAP"] == pytest.approx(0.75, abs=0.01)
    # An overlap of 0.6 is enough for mAP50 and not for mAP75.
    loose = [annotated([[0, 0, 100, 100]], [0])], [found([[0, 0, 60, 100]], [0])]
    result = average_precision(*loose, NAMES)
    assert (result["mAP50"], result["mAP75"]) == (pytest.approx(1.0), 0.0)


def test_detections_in_a_crowd_are_neither_right_nor_wrong():
    crowd = [annotated([[0, 0, 50, 50], [100, 0, 300, 200]], [0, 0], crowd=[False, True])]
    inside = [[120, 20, 150, 60], [200, 100, 250, 160]]
    both = [found([[0, 0, 50, 50], *inside], [0, 0, 0], [0.5, 0.9, 0.8])]
    assert average_precision(crowd, both, NAMES)["mAP"] == pytest.approx(1.0)
    outside = [found([[0, 0, 50, 50], [60, 120, 90, 190]], [0, 0], [0.5, 0.9])]
    assert average_precision(crowd, outside, NAMES)["mAP"] == pytest.approx(0.5)


def test_as_many_detections_as_images():
    with pytest.raises(ValueError, match="detections of 1 images for 3"):
        average_precision(TRUTH, PERFECT[:1], NAMES)


def test_without_pycocotools_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools.coco", None)
    with pytest.raises(ValueError, match=r"pip install 'ddas_gpu\[coco\]'"):
        average_precision(TRUTH, PERFECT, NAMES)


def test_boxes_come_back_out_of_perfect_predictions():
    """Predictions that equal the targets give the boxes themselves, once each."""
    size, anchors = (192, 320), anchors_for(192, 320)
    targets = targets_for(anchors, [i.boxes for i in TRUTH], [i.labels for i in TRUTH])
    hot = torch.nn.functional.one_hot(targets["classes"].clamp(min=0), 2)
    hot = hot * (targets["classes"] >= 0).unsqueeze(-1)
    predictions = {"logits": 20.0 * hot - 10.0, "deltas": targets["deltas"]}
    results = detections(predictions, anchors, [size] * 3)
    assert [len(result.labels) for result in results] == [2, 1, 0]
    assert average_precision(TRUTH, results, NAMES)["mAP"] == pytest.approx(1.0)
    doubled = [result.scaled(2, 0.5) for result in results]
    np.testing.assert_allclose(doubled[1].boxes, [[0, 0, 400, 75]], atol=0.01)


def test_detections_are_few_and_inside_the_image():
    torch.manual_seed(0)
    anchors = anchors_for(64, 96)
    predictions = {
        "logits": torch.randn(1, len(anchors), 5),
        "deltas": torch.randn(1, len(anchors), 4),
    }
    (result,) = detections(predictions, anchors, [(50, 90)], most=20)
    assert len(result.boxes) == len(result.scores) == len(result.labels) == 20
    assert (np.diff(result.scores) <= 0).all()
    assert (result.boxes >= 0).all() and (result.boxes[:, 2:] <= [90, 50]).all()
    assert ((result.boxes[:, 2:] - result.boxes[:, :2]) > 0).all()
