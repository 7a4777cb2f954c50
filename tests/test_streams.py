"""Draws: repeatable, independent of order and company, uniform."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from ddas_gpu.streams import draw


@given(
    st.integers(-(2**70), 2**70),
    st.lists(st.integers(0, 2**40), min_size=1, max_size=20),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_a_pure_function_of_seed_sample_and_stage(seed, samples, stages, shuffle):
    together = draw(seed, np.array(samples), stages)
    order = list(range(len(samples)))
    shuffle.shuffle(order)
    for i in order:
        alone = draw(seed, np.array([samples[i]]), stages + 1)
        assert (alone.negative[0, :stages] == together.negative[i]).all()
        assert (alone.position[0, :stages] == together.position[i]).all()


def test_signs_and_places_are_uniform():
    draws = draw(11, np.arange(40_000), 2)
    assert chisquare(np.bincount(draws.negative.ravel())).pvalue > 1e-3
    x, y = draws.centre(8, 12).reshape(-1, 2).T
    cells = np.bincount((x * 8 + y).astype(int), minlength=96)
    assert len(cells) == 96
    assert chisquare(cells).pvalue > 1e-3


def test_stages_samples_and_seeds_do_not_move_together():
    draws = draw(0, np.arange(20_000), 2)
    pairs = {
        "stages": (draws.negative[:, 0], draws.negative[:, 1]),
        "samples": (draws.negative[:-1, 0], draws.negative[1:, 0]),
        "seeds": (draws.negative[:, 0], draw(1, np.arange(20_000), 1).negative[:, 0]),
    }
    for name, (first, second) in pairs.items():
        agree = (first == second).mean()
        assert abs(agree - 0.5) < 0.02, f"{name} agree in {agree:.3f}"
