"""The figures of `online_agreement.py`: pairs of other seeds, and their standard errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import online_agreement as module
import pytest

COUNT = len(module.SPACE)


def line(seed: int, p_o: np.ndarray, steps: int = 0) -> dict[str, Any]:
    return {
        "domain": "same",
        "seed": seed,
        "training steps": steps,
        "p_o": p_o.tolist(),
        "p_tp": 0.5,
    }


def runs(seeds: range, noise: float, steps: int = 0) -> list[dict[str, Any]]:
    """Runs that agree on some order, apart from noise of their own."""
    order = np.arange(COUNT, dtype=float)
    return [
        line(seed, order + np.random.default_rng([seed, steps]).normal(0, noise, COUNT), steps)
        for seed in seeds
    ]


def test_pairs_of_one_seed_do_not_count():
    order = np.arange(COUNT, dtype=float)
    offline = [line(1, order), line(2, -order)]
    online = [line(1, order, 10), line(2, -order, 10)]
    assert module.agreement(online, offline) == pytest.approx(-1)
    assert module.FIGURES["difference"](offline + online, False) == pytest.approx(0)


def test_the_error_is_that_of_the_figure():
    """Over many repetitions the standard error is about the figures' standard deviation."""

    def figure(lines):
        return module.FIGURES["difference"](lines, False)

    found = [
        module.with_error(figure, runs(seeds, 9) + runs(seeds, 14, 10))
        for seeds in (range(9 * part, 9 * part + 9) for part in range(30))
    ]
    figures, errors = np.array(found).T
    assert figures.mean() > 0 and 0.6 < errors.mean() / figures.std(ddof=1) < 1.7


def test_the_table_has_the_seeds_with_both_runs():
    lines = runs(range(5), 5) + runs(range(1, 4), 5, 10)
    rows = module.table(lines).split("\n")
    cells = rows[2].split(" | ")
    assert len(rows) == 3 and cells[:3] == ["| same", "10", "3"] and "±" in cells[6]


def test_a_training_is_cut_where_the_policy_stays_or_tested_at_its_end():
    task = module.task_of("rotated", 0)
    how = {"warmup": 1, "every": 1, "searches": 1}
    cut = module.online(task, 8, **how)
    whole = module.online(task, 8, to_the_end=True, **how)
    assert cut["p_o"] == whole["p_o"] and cut["searches"] == whole["searches"] == 1
    assert "accuracy" not in cut and 0 <= whole["accuracy"] <= 1
