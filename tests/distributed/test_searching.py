"""Ranks with shares of a batch take the steps that one rank takes with all of it."""

from __future__ import annotations

import numpy as np
import pytest
from rank_scenarios import METHODS, searches

from ddas_gpu.distributed.ranks import ALONE


@pytest.fixture(scope="module")
def alone(boxes):
    return searches(ALONE, boxes, METHODS)


def test_exact_in_float64(answers, alone):
    """Losses, rewards, α and weights after several steps, to nine digits."""
    for answer in answers:
        assert {"fast", "synced batch norm", "coco"} <= answer["searches"].keys()
        for case, found in answer["searches"].items():
            expected = alone[case]
            assert max(abs(r) for rewards in expected["rewards"] for r in rewards) > 1e-4
            assert found["images"] == expected["images"]
            for name in ("losses", "rewards", "alpha", "weights"):
                ours, theirs = np.array(found[name]), np.array(expected[name])
                scale = np.abs(theirs).max()
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * scale, err_msg=case)


def test_all_ranks_have_the_same_bits(answers):
    for case in answers[0]["searches"]:
        for name in ("alpha", "weights"):
            assert len({a["searches"][case][name].tobytes() for a in answers}) == 1


def test_a_policy_that_changes_another_ranks_images_is_not_unchanged(answers):
    for answer in answers:
        assert all(reward != 0 for reward in answer["coloured"])
