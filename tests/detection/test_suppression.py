"""Non-maximum suppression against the textbook loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ddas_gpu.detection.boxes import overlaps
from ddas_gpu.detection.suppression import suppress


def greedy(boxes, scores, labels, most) -> list[int]:
    """One box at a time, surest first."""
    overlap = overlaps(boxes, boxes)
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        if not any(labels[i] == labels[j] and overlap[i, j] > most for j in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("most", [0.1, 0.5, 0.9])
def test_equals_the_greedy_loop(seed, most):
    generator = np.random.default_rng(seed)
    corner = generator.uniform(0, 20, (80, 2))
    boxes = torch.from_numpy(
        np.concatenate([corner, corner + generator.uniform(2, 20, (80, 2))], 1)
    )
    scores = torch.from_numpy(generator.choice(30, 80) / 30)  # some are equal
    labels = torch.from_numpy(generator.integers(0, 3, 80))
    kept = suppress(boxes, scores, labels, most)
    assert kept.tolist() == greedy(boxes, scores, labels, most)


def test_a_chain_is_decided_link_by_link():
    """Each box overlaps its neighbours only: every second one stays, however long the chain."""
    starts = torch.arange(21.0)[:, None] * 4
    boxes = torch.cat([starts, torch.zeros(21, 1), starts + 10, torch.full((21, 1), 10.0)], 1)
    scores = torch.linspace(1, 0, 21)
    kept = suppress(boxes, scores, torch.zeros(21), most=0.4)
    assert kept.tolist() == list(range(0, 21, 2))


def test_other_classes_do_not_matter_and_nothing_gives_nothing():
    box = torch.tensor([[0.0, 0.0, 5.0, 5.0]]).expand(3, 4)
    scores = torch.tensor([0.3, 0.9, 0.5])
    assert suppress(box, scores, torch.tensor([0, 1, 0])).tolist() == [1, 2]
    empty = suppress(torch.zeros(0, 4), torch.zeros(0), torch.zeros(0))
    assert empty.tolist() == []
