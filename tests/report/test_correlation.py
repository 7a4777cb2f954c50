"""The rank correlations are SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr

from ddas_gpu.report.correlation import rank_agreement

# Few different values, so that many are equal.
PAIRS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=3, max_size=40)


@given(PAIRS)
def test_equal_to_scipy_with_ties(pairs):
    a, b = zip(*pairs, strict=True)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        assert rank_agreement(a, b) is None
        return
    expected = spearmanr(a, b).statistic, kendalltau(a, b).statistic
    assert rank_agreement(a, b) == pytest.approx(expected, abs=1e-12)


def test_the_same_order_the_reverse_and_too_few():
    assert rank_agreement([1, 2, 3], [10, 20, 30]) == pytest.approx((1, 1))
    assert rank_agreement([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx((-1, -1))
    assert rank_agreement([1, 2], [1, 2]) is None
