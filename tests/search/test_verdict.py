"""The verdict names what differs, and nothing where nothing does."""

from __future__ import annotations

import numpy as np
import pytest

from ddas_gpu import SearchSpace
from ddas_gpu.search.verdict import verdict

SPACE = SearchSpace.preset("sanity")
NAMES = [str(candidate) for candidate in SPACE]


def made_up(
    seed: int, effects: dict[str, float], steps: int = 400
) -> tuple[np.ndarray, np.ndarray]:
    """Policies and rewards: noise, minus the effect of each candidate (a reward below 0 helps)."""
    generator = np.random.default_rng(seed)
    policies = generator.integers(0, len(SPACE), (steps, 3, 1))
    rewards = generator.normal(size=(steps, 3))
    for name, effect in effects.items():
        rewards -= effect * (policies[..., 0] == NAMES.index(name))
    return policies, rewards


def test_candidates_that_help_and_harm_are_named():
    text = verdict(SPACE, *made_up(0, {"Rotate90": 4.0, "Invert": -4.0}))
    better, worse = text.split("helped less")
    assert "Rotate90" in better and "Invert" in worse and "1 helped more" in better


def test_noise_is_rarely_taken_for_a_finding():
    texts = [verdict(SPACE, *made_up(seed, {})) for seed in range(40)]
    assert sum("as good as uniform" in text for text in texts) >= 36


def test_too_few_steps():
    assert "too few" in verdict(SPACE, *made_up(0, {"Rotate90": 9.0}, steps=20))


@pytest.mark.filterwarnings("error")
def test_steps_without_a_signal_and_candidates_never_tried():
    policies, rewards = np.zeros((100, 2, 1), int), np.zeros((100, 2))
    assert "as good as uniform" in verdict(SPACE, policies, rewards)
