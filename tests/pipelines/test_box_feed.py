"""What the host knows before a file is opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddas_gpu.data.coco import Annotated
from ddas_gpu.pipelines.box_api import prepare_boxes
from ddas_gpu.pipelines.box_feed import TARGETS, padded


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_boxes_are_padded_to_the_most_there_are(counts):
    boxes = [np.full((count, 4), 3.0) for count in counts]
    labels = [np.arange(count) for count in counts]
    arrays = padded(boxes, labels)
    assert arrays["counts"].tolist() == counts
    assert arrays["boxes"].shape == (len(counts), max(1, *counts, 1), 4)
    for row, count in enumerate(counts):
        assert (arrays["boxes"][row, :count] == 3).all() and not arrays["boxes"][row, count:].any()
        assert arrays["labels"][row, :count].tolist() == list(range(count))
        assert (arrays["labels"][row, count:] == -1).all()


def test_no_file_is_needed_for_the_targets(box_schedule):
    """They are computed while DALI is still busy with the batches before."""
    columns = np.array([[10.0, 20, 60, 80]]), np.array([3]), np.array([1.0]), np.array([False])
    images = [Annotated(Path(f"nowhere/{i}.jpg"), 100, 150, *columns) for i in range(40)]
    settings = {"training": True, "schedule": box_schedule, "epochs": 3, "batch_size": 40}
    feed, order = prepare_boxes(images, **settings)
    batch, steps = feed.make(1, order.batch(1, 0))
    assert set(TARGETS) <= batch.keys()
    assert len(steps) == 40 and any(steps) and not all(steps)  # p_tp is between 0 and 1
    again, _ = feed.from_batch(7).make(1, order.batch(1, 0))
    assert all(np.array_equal(batch[name], again[name]) for name in TARGETS)
    mirrored = batch["scaled"][:, 1] < 0
    assert mirrored.any() and not mirrored.all()
