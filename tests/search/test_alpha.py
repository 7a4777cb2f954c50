"""α: its probabilities, weights and gradients against formulas written out by hand."""

from __future__ import annotations

import copy
import math
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch.utils._pytree import tree_leaves

from ddas_gpu.search.alpha import (
    AugmentationParameters,
    TrialLog,
    deal_policies,
    draw_policies,
)
from ddas_gpu.streams import Stream, generator

K = 5


def parameters_at(seed: int, **options) -> AugmentationParameters:
    """Some α that is neither uniform nor at its start."""
    parameters = AugmentationParameters(K, 0.35, **options)
    random = np.random.default_rng(seed)
    with torch.no_grad():
        parameters.alpha_o.copy_(torch.from_numpy(random.normal(size=K)))
        parameters.alpha_tp.fill_(random.normal())
    return parameters


def some_policies(seed: int, count: int = 3, depth: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, K, (count, depth))


def some_rewards(seed: int, count: int = 3) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed + 1).normal(size=count))


def by_hand(parameters: AugmentationParameters, policies: np.ndarray, rewards: torch.Tensor):
    """∂/∂α_tp and ∂/∂α_o of Σ_l r_l/(Z·Z_g)·p_tp·P(φ_l), without any autograd.

    dp_tp/dα_tp = p_tp(1 - p_tp); dP(φ)/dα_k = P(φ)·(how often φ has k - N_o·p_k).
    """
    alpha_o, alpha_tp = parameters.alpha_o.tolist(), parameters.alpha_tp.item()
    total = sum(math.exp(a) for a in alpha_o)
    p_o = [math.exp(a) / total for a in alpha_o]
    p_tp = 1 / (1 + math.exp(-alpha_tp))
    shares = [math.prod(p_o[k] for k in policy) for policy in policies.tolist()]
    z, z_g = sum(shares), sum(abs(r) for r in rewards.tolist())
    factors = [r / (z * z_g) for r in rewards.tolist()]
    on_tp = sum(f * s for f, s in zip(factors, shares, strict=True)) * p_tp * (1 - p_tp)
    on_o = [
        sum(
            factor * p_tp * share * (policy.count(k) - len(policy) * p_o[k])
            for factor, share, policy in zip(factors, shares, policies.tolist(), strict=True)
        )
        for k in range(K)
    ]
    return on_tp, on_o


@given(st.integers(0, 9999), st.integers(1, 6), st.integers(1, 4))
def test_gradients_are_the_papers(seed, count, depth):
    parameters = parameters_at(seed)
    policies, rewards = some_policies(seed, count, depth), some_rewards(seed, count)
    on_tp, on_o = by_hand(parameters, policies, rewards)
    assert parameters.update(policies, rewards)
    np.testing.assert_allclose(parameters.alpha_tp.grad, on_tp, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(parameters.alpha_o.grad, on_o, rtol=1e-9, atol=1e-15)


@given(st.integers(0, 9999), st.floats(1e-6, 1e6))
def test_the_size_of_the_rewards_does_not_matter(seed, factor):
    """That is what Z_g is for."""
    one, other = parameters_at(seed), parameters_at(seed)
    policies, rewards = some_policies(seed), some_rewards(seed)
    one.update(policies, rewards)
    other.update(policies, rewards * factor)
    np.testing.assert_allclose(one.alpha_o.grad, other.alpha_o.grad, rtol=1e-9, atol=1e-18)
    np.testing.assert_allclose(one.alpha_tp.grad, other.alpha_tp.grad, rtol=1e-9, atol=1e-18)


@given(st.integers(0, 9999), st.integers(1, 6))
def test_weights_share_p_tp_among_the_policies(seed, count):
    parameters, policies = parameters_at(seed), some_policies(seed, count)
    weights = parameters.weights(policies)
    p_tp, p_o = parameters.apply_probability, parameters.op_probabilities
    assert weights.shape == (count + 1,)
    assert not weights.requires_grad
    assert weights[0].item() == pytest.approx(1 - p_tp, abs=1e-15)
    assert weights.sum().item() == pytest.approx(1)
    shares = p_o[policies].prod(1)
    np.testing.assert_allclose(weights[1:], p_tp * shares / shares.sum(), rtol=1e-12)


def test_start_is_uniform_and_where_asked():
    parameters = AugmentationParameters(52, 0.75)
    assert parameters.apply_probability == pytest.approx(0.75)
    np.testing.assert_allclose(parameters.op_probabilities, 1 / 52)
    assert parameters.alpha_o.dtype == parameters.alpha_tp.dtype == torch.float64


@pytest.mark.parametrize("start", [0.0, 1.0, -0.1, 1.1, float("nan")])
def test_a_start_without_a_logit_is_refused(start):
    with pytest.raises(ValueError, match="between 0 and 1"):
        AugmentationParameters(3, start)


def test_the_better_policy_gains():
    """r < 0: its step lowers the validation loss more than the clean one."""
    parameters = AugmentationParameters(K, 0.35)
    before = parameters.apply_probability
    parameters.update(np.array([[0], [1]]), torch.tensor([-2.0, 1.0]))
    after = parameters.op_probabilities
    assert after[0] > 1 / K > after[1]
    assert parameters.apply_probability > before


def test_first_adam_steps_are_the_learning_rates():
    parameters = AugmentationParameters(K, 0.35, lr_ops=0.005, lr_apply=0.001)
    start = parameters.alpha_tp.item()
    parameters.update(np.array([[0, 0], [1, 1]]), torch.tensor([-2.0, 1.0]))
    assert parameters.alpha_o[0].item() == pytest.approx(0.005, rel=1e-4)
    assert parameters.alpha_o[1].item() == pytest.approx(-0.005, rel=1e-4)
    assert parameters.alpha_tp.item() - start == pytest.approx(0.001, rel=1e-4)


def test_no_signal_means_no_step_at_all():
    """Z_g = 0: not even Adam's memory may move, or the next step would differ."""
    parameters = parameters_at(0)
    parameters.update(some_policies(0), some_rewards(0))
    before = copy.deepcopy(parameters.state_dict())
    assert not parameters.update(some_policies(1), torch.zeros(3))
    for ours, theirs in zip(tree_leaves(parameters.state_dict()), tree_leaves(before), strict=True):
        assert torch.equal(ours, theirs) if torch.is_tensor(ours) else ours == theirs


def test_state_goes_on_where_it_was():
    one, other = parameters_at(0), AugmentationParameters(K, 0.35)
    one.update(some_policies(0), some_rewards(0))
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for parameters in (one, other):
        parameters.update(some_policies(1), some_rewards(1))
    assert torch.equal(one.alpha_o, other.alpha_o)
    assert torch.equal(one.alpha_tp, other.alpha_tp)


def test_policies_are_drawn_uniformly():
    """Candidates, pairs of candidates, and across the steps of a search."""
    draws = np.concatenate(
        [draw_policies(generator(0, Stream.POLICIES, step), 3, 2, K) for step in range(4000)]
    )
    assert draws.shape == (12000, 2)
    pairs = np.bincount(draws[:, 0] * K + draws[:, 1], minlength=K * K)
    assert chisquare(pairs).pvalue > 0.01


@given(st.integers(0, 9999), st.integers(1, 6), st.integers(1, 4))
def test_compared_with_the_other_policies_only_candidates_that_were_drawn_move(seed, count, depth):
    """∂/∂α_k = p_tp/Z_g Σ_l P(φ_l)/Z (r_l - r̄) (how often φ_l has k), r̄ the mean by P(φ_l)."""
    parameters = parameters_at(seed, relative=True)
    policies, rewards = some_policies(seed, count, depth), some_rewards(seed, count)
    p_tp, p_o = parameters.apply_probability, parameters.op_probabilities
    on_tp, _ = by_hand(parameters, policies, rewards)
    shares = p_o[policies].prod(1) / p_o[policies].prod(1).sum()
    r = rewards.numpy() / rewards.abs().sum().item()
    often = (policies[..., None] == np.arange(K)).sum(1)  # (L̂, K)
    parameters.update(policies, rewards)
    want = p_tp * ((r - shares @ r) * shares) @ often
    np.testing.assert_allclose(parameters.alpha_o.grad, want, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(parameters.alpha_tp.grad, on_tp, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(("count", "candidates"), [(3, 7), (8, 5), (4, 4)])
def test_decks_try_every_candidate_equally_often(count, candidates):
    steps = [deal_policies(3, step, count, 2, candidates) for step in range(candidates)]
    dealt = np.concatenate(steps)
    for place in dealt.T:
        np.testing.assert_array_equal(np.bincount(place), count)
    assert steps[0].shape == (count, 2)
    np.testing.assert_array_equal(steps[2], deal_policies(3, 2, count, 2, candidates))
    assert (
        dealt
        != np.concatenate([deal_policies(4, s, count, 2, candidates) for s in range(candidates)])
    ).any()


def test_policies_from_decks_are_uniform():
    dealt = np.concatenate([deal_policies(0, step, 3, 2, K) for step in range(4000)])
    pairs = np.bincount(dealt[:, 0] * K + dealt[:, 1], minlength=K * K)
    assert chisquare(pairs).pvalue > 0.01


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20), st.integers(0, 20))
def test_the_log_of_trials_keeps_every_bit(seeds, restart):
    """Also when it is stored and loaded on the way."""
    log, rows = TrialLog(3, 2), []
    for number, seed in enumerate(seeds):
        if number == restart:
            log, stored = TrialLog(3, 2), log.state_dict()
            log.load_state_dict(stored)
        random = np.random.default_rng(seed)
        rows.append((random.integers(0, 2**31, (3, 2)), random.normal(size=3), random.normal()))
        log.append(*rows[-1])
    for part, shape, values in zip(log.arrays(), ((3, 2), (3,), ()), range(3), strict=True):
        assert part.shape == (len(rows), *shape)
        assert part.tolist() == [np.asarray(row[values]).tolist() for row in rows]


def test_the_log_of_trials_takes_a_few_dozen_bytes_per_step():
    log, row = TrialLog(3, 2), (np.ones((3, 2), int), np.ones(3), 1.0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(2000):
        log.append(*row)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken < 2000 * 70
