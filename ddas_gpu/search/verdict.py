"""What can be said of the candidates after a search, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from ddas_gpu.space import SearchSpace

BLOCKS = 20  # of consecutive steps: neighbours are not independent, blocks nearly are
RESAMPLES = 1000
ERROR = 0.05  # the share of searches in which chance alone singles out some candidate
NAMED = 3


def verdict(space: SearchSpace, policies: np.ndarray, rewards: np.ndarray) -> str:
    """Say which candidates helped more and less than the average one did.

    policies: (S, L̂, N_o) candidates tried in each of S steps; rewards: (S, L̂), r of the paper,
    negative where a policy has helped.
    """
    if len(rewards) < 2 * BLOCKS:
        return f"{len(rewards)} steps are too few to tell the {len(space)} candidates apart."
    advantage, deviation = advantages(len(space), policies, rewards)
    bound = quantile(1 - ERROR / 2 / len(space), BLOCKS - 1) * deviation
    better, worse = np.flatnonzero(advantage > bound), np.flatnonzero(advantage < -bound)
    if not len(better) and not len(worse):
        return (
            f"None of the {len(space)} candidates can be told apart from the average one "
            f"in {len(rewards)} steps: the policy is as good as uniform."
        )
    parts = []
    for word, found in (("more", better), ("less", worse)):
        if len(found):
            order = found[np.argsort(-np.abs(advantage[found]), kind="stable")]
            parts.append(f"{len(found)} helped {word} ({_names(space, order)})")
    return (
        f"Of {len(space)} candidates, {' and '.join(parts)} than the average one; the others "
        "cannot be told apart from it (95 % intervals over this run's steps, not over seeds)."
    )


def quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's t, to the second order in 1 / freedom.

    >>> round(quantile(0.975, 19), 2), round(quantile(0.999, 19), 2)
    (2.09, 3.57)
    """
    z = NormalDist().inv_cdf(share)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def advantages(
    count: int, policies: np.ndarray, rewards: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return how much better than the average of all each candidate did, and its deviation, (K,).

    A step's rewards are divided by Σ|r|, as the search divides them. The deviation is that of a
    bootstrap over blocks of steps.
    """
    total = np.abs(rewards).sum(1, keepdims=True)
    gains = np.divide(-rewards, total, out=np.zeros_like(rewards), where=total > 0)
    sums, tries = np.zeros((2, BLOCKS, count))
    for block, steps in enumerate(np.array_split(np.arange(len(rewards)), BLOCKS)):
        chosen, gained = policies[steps], gains[steps]
        repeated = np.broadcast_to(gained[..., None], chosen.shape)
        np.add.at(sums[block], chosen.ravel(), repeated.ravel())
        np.add.at(tries[block], chosen.ravel(), 1)

    def relative(weights: np.ndarray) -> np.ndarray:
        """(…, BLOCKS) multiplicities of the blocks → (…, K)."""
        gained, tried = weights @ sums, weights @ tries
        mean = gained.sum(-1, keepdims=True) / tried.sum(-1, keepdims=True)
        return np.divide(gained, tried, out=np.zeros_like(gained), where=tried > 0) - mean

    generator = np.random.default_rng(0)
    drawn = generator.multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), RESAMPLES)
    unbiased = (BLOCKS / (BLOCKS - 1)) ** 0.5
    return relative(np.ones(BLOCKS)), unbiased * relative(drawn.astype(float)).std(0)


def _names(space: SearchSpace, order: Sequence[int] | np.ndarray) -> str:
    named = [str(space[int(index)]) for index in order[:NAMED]]
    return ", ".join([*named, "…"] if len(order) > NAMED else named)
