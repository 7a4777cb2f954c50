"""Ranks with shares of a batch take the steps that one rank takes with all of it."""

from __future__ import annotations

import numpy as np
import pytest
from rank_scenarios import METHODS, searches

from ddas_gpu.distributed.ranks import ALONE


@pytest.fixture(scope="module")
def alone(coco_root_if_any):
    return searches(ALONE, coco_root_if_any, METHODS)


@pytest.mark.parametrize("case", [*METHODS, "coco"])
def test_exact_in_float64(answers, alone, case):
    """Losses, rewards, α and weights after several steps, to nine digits."""
    if case not in answers[0]["searches"]:
        pytest.skip("no COCO images here, or another method would tell no more")
    expected = alone[case]
    assert max(abs(r) for rewards in expected["rewards"] for r in rewards) > 1e-4
    for answer in answers:
        found = answer["searches"][case]
        assert found["images"] == expected["images"]
        for name in ("losses", "rewards", "alpha", "weights"):
            ours, theirs = np.array(found[name]), np.array(expected[name])
            scale = np.abs(theirs).max()
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * scale, err_msg=name)


@pytest.mark.parametrize("case", [*METHODS, "coco"])
def test_all_ranks_have_the_same_bits(answers, case):
    found = [answer["searches"].get(case) for answer in answers]
    if found[0] is None:
        pytest.skip("no COCO images here, or another method would tell no more")
    for name in ("alpha", "weights"):
        assert len({each[name].tobytes() for each in found}) == 1


def test_a_policy_that_changes_another_ranks_images_is_not_unchanged(answers):
    for answer in answers:
        assert all(reward != 0 for reward in answer["identity"])
