"""RandAugment, TrivialAugment and uniform policies as schedules."""

from __future__ import annotations

import numpy as np
import pytest

from ddas_gpu import SearchSpace
from ddas_gpu.ops.table import PixelScale
from ddas_gpu.pipelines.draws import draw_policies
from ddas_gpu.train import baselines


def test_uniform_is_where_a_search_starts():
    space = SearchSpace.preset("cifar")
    schedule = baselines.uniform(space)
    assert schedule.space == space
    assert schedule.p_tp.tolist() == [0.35]
    assert np.ptp(schedule.p_o) == 0


def test_randaugment_always_applies_ops_of_one_level():
    schedule = baselines.randaugment(ops=3, level=5, scale=PixelScale(translate=100))
    assert len(schedule.space) == 14
    assert schedule.space.depth == 3
    assert {candidate.level for candidate in schedule.space} == {None, 5}
    drawn = draw_policies(schedule, 10, 0, 3, np.arange(20_000))
    assert (drawn >= 0).all()
    counts = np.bincount(drawn.ravel(), minlength=14) / drawn.size
    assert np.abs(counts - 1 / 14).max() < 0.005
    places = {str(c): schedule.space.argument(i) for i, c in enumerate(schedule.space)}
    assert places["TranslateX 5"] == 50 and places["Rotate 5"] == 15


def test_trivialaugment_draws_ops_and_magnitudes_evenly():
    schedule = baselines.trivialaugment()
    assert schedule.space.depth == 1
    by_op = {}
    for candidate, probability in zip(schedule.space, schedule.p_o[0], strict=True):
        by_op.setdefault(candidate.op, []).append(probability)
    assert len(by_op) == 14
    for probabilities in by_op.values():
        assert sum(probabilities) == pytest.approx(1 / 14)
        assert len(probabilities) in (1, baselines.TRIVIALAUGMENT_BINS)
        assert np.ptp(probabilities) == 0
    degrees = [schedule.space.argument(i) for i, c in enumerate(schedule.space) if c.op == "Rotate"]
    assert degrees == list(range(31))
