"""What a search prints of its candidates."""

from __future__ import annotations

import numpy as np

from ddas_gpu import SearchSpace
from ddas_gpu.search.job import top_candidates


def test_top_candidates_in_multiples_of_uniform():
    space = SearchSpace.of(("Identity", "Invert", "Rotate"), levels=(8,))
    probabilities = np.array([0.25, 0.15, 0.6])
    assert top_candidates(space, probabilities, 2) == "Rotate 8 1.80×, Identity 0.75×"
    assert top_candidates(space, -probabilities, 1) == "Invert 0.45×"
