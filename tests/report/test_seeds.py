"""Seeds of one setting: groups, intervals, and what they tell."""

from __future__ import annotations

import numpy as np
import pytest
from run_folders import write_run

from ddas_gpu.report.run import load_run
from ddas_gpu.report.seeds import grouped, paired, spread_of, t_quantile, told_apart


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (9, 2.2622), (30, 2.0423)]
)
def test_quantiles_of_students_t(freedom, quantile):
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=1e-4)


def test_a_difference_is_taken_seed_by_seed():
    ours, theirs = {0: 0.9, 1: 0.6, 2: 0.75, 3: 0.1}, {2: 0.73, 0: 0.88, 1: 0.59}
    spread = paired(ours, theirs)
    assert spread.seeds == 3 and spread.told
    assert spread.mean == pytest.approx(0.05 / 3)
    assert spread.half == pytest.approx(4.3027 * np.std([0.02, 0.01, 0.02], ddof=1) / 3**0.5, 1e-4)
    assert paired({0: 0.1}, {1: 0.2}) is None


def test_how_many_seeds_it_would_take():
    assert spread_of([0.02, 0.01, 0.02]).seeds_needed == 3  # as it was told
    assert spread_of([0.05, -0.01, 0.02]).seeds_needed == 12
    assert spread_of([0.05, -0.05, 0.001]).seeds_needed is None


@pytest.mark.parametrize("values", [[0.1], [0.1, 0.1, 0.1], [0.1, -0.05, 0.2]])
def test_one_seed_no_spread_and_noise_tell_nothing(values):
    assert not spread_of(values).told


def test_intervals_hold_as_often_as_they_say():
    drawn = np.random.default_rng(0).normal(0, 1, (2000, 3))
    told = sum(spread_of(list(values)).told for values in drawn)
    assert 0.035 < told / 2000 < 0.065
    several = sum(any(told_apart({str(n): spread_of(list(v)) for n, v in enumerate(few)}))
                  for few in drawn.reshape(-1, 20, 3))  # fmt: skip
    assert several / 100 < 0.12


def test_runs_of_one_setting_are_one_group(tmp_path):
    places = {"a/seed-0": (0, 1), "a/seed-1": (1, 1), "b/seed-0": (0, 2), "b/seed-1": (1, 2)}
    runs = [
        load_run(write_run(tmp_path / place, seed=seed, lr=lr, out=place))
        for place, (seed, lr) in places.items()
    ]
    groups = grouped(runs, list(places))
    assert [(group.name, list(group.runs)) for group in groups] == [("a", [0, 1]), ("b", [0, 1])]
    (one,) = grouped(runs[:1] + runs[:1], ["x", "y"])  # the same seed twice
    assert len(one.runs) == 2
