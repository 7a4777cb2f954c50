"""Rank correlations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

FEWEST = 3  # with fewer values a correlation says nothing


def rank_agreement(a: Sequence[float], b: Sequence[float]) -> tuple[float, float] | None:
    """Return Spearman's ρ and Kendall's τ_b, or None for too few or constant values.

    >>> [round(correlation, 2) for correlation in rank_agreement([1, 2, 3], [10, 20, 20])]
    [0.87, 0.82]
    """
    if len(a) < FEWEST or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    spearman = np.corrcoef(_ranks(a), _ranks(b))[0, 1]
    order_a, order_b = _pair_order(a), _pair_order(b)
    kendall = (order_a * order_b).sum() / np.sqrt((order_a**2).sum() * (order_b**2).sum())
    return float(spearman), float(kendall)


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Return ranks from 1; equal values share the mean of their ranks."""
    _, place, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def _pair_order(values: Sequence[float]) -> np.ndarray:
    """Return (n, n): 1, 0 or −1 for each pair that rises, is equal or falls."""
    array = np.asarray(values)
    return np.sign(array[:, None] - array[None, :])
