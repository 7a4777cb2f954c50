"""The test of a detector: boxes find their way back to the original images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ddas_gpu.data.coco import Annotated
from ddas_gpu.detection import targets_for
from ddas_gpu.models.retinanet import anchors_for
from ddas_gpu.pipelines import DetectionBatch
from ddas_gpu.tasks.detector_evaluation import evaluate_detector

SIDE, SCALE = 128, 2.0
ANCHORS = anchors_for(SIDE, SIDE, SCALE)


def annotated(width: int, height: int, *boxes: tuple[float, ...]) -> Annotated:
    corners = np.array(boxes, float).reshape(-1, 4)
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    labels = np.arange(len(corners))
    crowd = np.zeros(len(corners), bool)
    return Annotated(Path("none"), height, width, corners, labels, areas, crowd)


# One image is twice as high in the network as on disk, one half as wide; none has a small box.
TRUTH = [
    annotated(100, 50, (10, 5, 60, 45), (50, 10, 99, 49)),
    annotated(200, 100, (20, 30, 120, 90)),
    annotated(100, 100),
]
SIZES = [(100, 100), (100, 100), (128, 64)]  # heights and widths in the network


def batch(*indices: int) -> DetectionBatch:
    """Some of the images, as a loader gives them."""
    boxes, labels = torch.zeros(len(indices), 2, 4), torch.full((len(indices), 2), -1)
    for place, index in enumerate(indices):
        image, (height, width) = TRUTH[index], SIZES[index]
        x, y = width / image.width, height / image.height
        count = len(image.labels)
        boxes[place, :count] = torch.tensor(image.boxes * [x, y, x, y]).float()
        labels[place, :count] = torch.tensor(image.labels)
    return DetectionBatch(
        torch.zeros(len(indices), 3, SIDE, SIDE),
        boxes,
        labels,
        (labels >= 0).sum(1),
        torch.tensor([SIZES[index] for index in indices]),
        torch.tensor(indices),
        torch.tensor(indices),
        labels + 1,
    )


class Oracle(torch.nn.Module):
    """Answers what is right in the batches it is asked for in turn, so surely as `sure` says."""

    def __init__(self, *batches: DetectionBatch) -> None:
        super().__init__()
        self.sure = torch.nn.Parameter(torch.tensor(8.0))
        self._batches = iter(batches)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        assert not self.training
        asked = next(self._batches)
        targets = targets_for(ANCHORS, asked.boxes, asked.labels)
        logits = torch.full((*targets["classes"].shape, 2), -8.0)
        chosen = targets["classes"] >= 0
        logits[chosen, targets["classes"][chosen]] = self.sure
        return {"logits": logits, "deltas": targets["deltas"]}


def test_right_answers_are_right_in_the_original_pixels():
    batches = [batch(2, 0), batch(1)]  # in any order: the ids tell
    oracle = Oracle(*batches).train()
    tested = evaluate_detector(oracle, batches, TRUTH, ("a", "b"), anchor_scale=SCALE)
    assert tested["test_mAP"] == pytest.approx(1)
    assert tested["test_mAP50"] == pytest.approx(1)
    assert tested["test_loss"] < 0.01
    assert "test_mAP_large" in tested or "test_mAP_medium" in tested
    assert "test_mAP_small" not in tested  # there is nothing to find
    assert oracle.training


def test_the_weights_that_are_tested_are_those_given():
    batches = [batch(0, 1, 2)]
    oracle = Oracle(*batches)
    tested = evaluate_detector(
        oracle,
        batches,
        TRUTH,
        ("a", "b"),
        anchor_scale=SCALE,
        weights={"sure": torch.tensor(-8.0)},
    )
    assert tested["test_mAP"] == 0
    assert float(oracle.sure.detach()) == 8


def test_padded_boxes_match_no_anchor():
    padded = batch(0, 1, 2)
    exact = targets_for(
        ANCHORS,
        [boxes[:count] for boxes, count in zip(padded.boxes, padded.counts, strict=True)],
        [labels[:count] for labels, count in zip(padded.labels, padded.counts, strict=True)],
    )
    ours = targets_for(ANCHORS, padded.boxes, padded.labels)
    assert ours["classes"].equal(exact["classes"]) and ours["deltas"].equal(exact["deltas"])
