"""Ranks that train together train as one does with the whole batch, and test as one does."""

from __future__ import annotations

import numpy as np
import pytest
from rank_scenarios import trainings

from ddas_gpu.distributed.ranks import ALONE


@pytest.fixture(scope="module")
def alone(boxes):
    return trainings(ALONE, boxes)


# A detector's loss is computed in single precision.
@pytest.mark.parametrize(("case", "digits"), [("digits", 9), ("coco", 4)])
def test_weights_and_metrics_are_those_of_one_rank(answers, alone, case, digits):
    expected = alone[case]
    largest = np.abs(expected["weights"]).max()
    for answer in answers:
        found = answer["trainings"][case]
        error = np.abs(found["weights"] - expected["weights"]).max()
        assert error < 10**-digits * largest
        assert found["names"] == expected["names"]  # nothing of the wrapper's
        for ours, theirs in zip(found["epochs"], expected["epochs"], strict=True):
            assert ours.keys() == theirs.keys()
            for name, value in theirs.items():
                assert ours[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_all_ranks_have_the_same_numbers(answers):
    for case in ("digits", "coco"):
        first, *others = (answer["trainings"][case] for answer in answers)
        for other in others:
            assert other["epochs"] == first["epochs"]
            assert other["weights"].tobytes() == first["weights"].tobytes()
