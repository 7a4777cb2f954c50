"""Holding exported ops to the table of differences."""

from __future__ import annotations

import numpy as np

from ddas_gpu.export.differences import Difference


def within(bounds: Difference, ours: np.ndarray, theirs: np.ndarray) -> None:
    """Fail where two batches differ more than a row of the table says."""
    edge = slice(bounds.border, -bounds.border or None)
    difference = np.abs(ours.astype(int) - theirs)[:, edge, edge]
    assert theirs.dtype == np.uint8 and theirs.shape == ours.shape
    assert difference.max() <= bounds.levels
    assert (difference > 0).any(-1).mean() <= bounds.share
