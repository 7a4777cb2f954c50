"""The verdict names what differs, and nothing where nothing does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.search.alpha import AugmentationParameters
from ddas_gpu.search.verdict import HELPS, HURTS, MIXED, UNKNOWN, Apply, Trials, judge

SPACE = SearchSpace.preset("sanity")
NAMES = [str(candidate) for candidate in SPACE]
START = Apply(0.35, 0.01, (0.5, 0.999), 0.4)


def made_up(
    seed: int, effects: dict[str, float], steps: int = 400, space: SearchSpace = SPACE
) -> Trials:
    """Policies and rewards: noise, minus the effect of each candidate (a reward below 0 helps)."""
    generator, names = np.random.default_rng(seed), [str(candidate) for candidate in space]
    policies = generator.integers(0, len(space), (steps, 3, 1))
    rewards = generator.normal(size=(steps, 3)) + generator.normal(size=(steps, 1))
    for name, effect in effects.items():
        rewards -= effect * (policies[..., 0] == names.index(name))
    return Trials(policies, rewards, rewards.mean(1) / np.abs(rewards).sum(1))


def words(trials: Trials, space: SearchSpace = SPACE) -> dict[str, str]:
    """{op: its verdict}."""
    return {op: entry["verdict"] for op, entry in judge(space, [trials], [START])["ops"].items()}


def called(content: dict) -> int:
    """How many candidates' intervals leave out 0."""
    return sum(low > 0 or high < 0 for _, low, high in content["candidates"])


def test_ops_that_help_and_hurt_are_named():
    trials = made_up(0, {"Rotate90": 4.0, "Invert": -4.0})
    content = judge(SPACE, [trials], [START])
    ops = {op: entry["verdict"] for op, entry in content["ops"].items()}
    assert (ops["Rotate90"], ops["Invert"]) == (HELPS, HURTS)
    assert set(ops.values()) - {HELPS, HURTS} == {UNKNOWN} and content["told"]
    assert content["sentence"].startswith("Rotate90 helps; Invert hurts; the other")
    assert called(content) == 2


def test_an_op_may_depend_on_its_level():
    space = SearchSpace.of(("Identity", "Invert", "Rotate"), levels=(2, 14))
    assert words(made_up(0, {"Rotate 2": 4.0, "Rotate 14": -4.0}, 400, space), space) == {
        "Identity": UNKNOWN,
        "Invert": UNKNOWN,
        "Rotate": MIXED,
    }


def test_levels_that_are_too_weak_alone_are_told_together():
    levels = (2, 4, 6, 8, 10, 12)
    space = SearchSpace.of(("Identity", "Invert", "FlipLR", "FlipUD", "Rotate"), levels)
    weak = {f"Rotate {level}": 0.9 for level in levels}
    content = judge(space, [made_up(0, weak, 300, space)], [START])
    assert content["ops"]["Rotate"]["verdict"] == HELPS
    assert called(content) < len(levels)


def test_noise_is_rarely_taken_for_a_finding():
    contents = [judge(SPACE, [made_up(seed, {})], [START]) for seed in range(40)]
    assert sum(content["told"] for content in contents) <= 4
    assert sum(map(called, contents)) <= 0.05 * 40 * len(SPACE)


@pytest.fixture(scope="module")
def recorded() -> Trials:
    """A search on 300 digits, with validation images that were rotated by up to 50°."""
    with np.load(Path(__file__).with_name("rotated_digits.npz")) as content:
        return Trials(*(content[name].astype(kind) for name, kind in RECORDED))


RECORDED = (("policies", np.int64), ("rewards", np.float64), ("pulls", np.float64))
RECORDED_SPACE = SearchSpace.of(
    tuple(dict.fromkeys(candidate.op for candidate in SearchSpace.preset("digits"))),
    levels=(2, 6, 10, 14),
)


def test_shuffled_over_the_policies_the_rewards_of_a_search_tell_nothing(recorded):
    """At most 5 % of the candidates are called, over 20 seeds."""
    shuffled = 0
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(recorded.rewards.size)
        shape = recorded.policies.shape
        policies = recorded.policies.reshape(-1, shape[2])[order].reshape(shape)
        trials = Trials(policies, recorded.rewards, recorded.pulls)
        shuffled += called(judge(RECORDED_SPACE, [trials], [START]))
    assert shuffled <= 0.05 * 20 * len(RECORDED_SPACE)


def test_as_they_were_they_tell_that_rotation_helps(recorded):
    content = judge(RECORDED_SPACE, [recorded], [START])
    assert content["ops"]["Rotate"]["verdict"] == HELPS
    assert content["ops"]["Rotate"]["steps_needed"] < content["steps"]


def test_twice_the_effect_needs_a_quarter_of_the_steps():
    needed = [
        judge(SPACE, [made_up(3, {"Invert": effect}, 2000)], [START])["ops"]["Invert"]
        for effect in (0.3, 0.6)
    ]
    assert 2 < needed[0]["steps_needed"] / needed[1]["steps_needed"] < 8


def test_seeds_together_tell_what_one_alone_does_not():
    seeds = [made_up(seed, {"Invert": 0.5}, 200) for seed in range(8)]
    alone = [words(trials)["Invert"] for trials in seeds]
    together = judge(SPACE, seeds, [START] * 8)
    assert alone.count(UNKNOWN) > 4
    assert together["ops"]["Invert"]["verdict"] == HELPS and together["steps"] == 1600
    assert "the steps of 8 seeds" in together["sentence"]


def test_seeds_that_disagree_do_not_tell():
    seeds = [made_up(seed, {"Invert": 3.0 * (-1) ** seed}) for seed in range(4)]
    assert judge(SPACE, seeds, [START] * 4)["ops"]["Invert"]["verdict"] == UNKNOWN


def test_the_interval_of_the_probability_to_augment_is_that_of_replays():
    """It holds what Adam comes to, and lies above the start if augmenting always helped."""
    trials = made_up(0, dict.fromkeys(NAMES, 1.0))
    parameters = AugmentationParameters(len(SPACE), 0.35, lr_apply=0.01)
    for policies, rewards in zip(trials.policies, trials.rewards, strict=True):
        parameters.update(policies, torch.from_numpy(rewards))
    end = parameters.apply_probability
    low, high = judge(SPACE, [trials], [Apply(0.35, 0.01, (0.5, 0.999), end)])["apply_probability"]
    assert 0.35 < low < end < high < 1


def test_too_few_steps():
    content = judge(SPACE, [made_up(0, {"Rotate90": 9.0}, steps=20)], [START])
    assert "too few" in content["sentence"] and not content["told"]


@pytest.mark.filterwarnings("error")
def test_steps_without_a_signal_and_candidates_never_tried():
    trials = Trials(np.zeros((100, 2, 1), int), np.zeros((100, 2)), np.zeros(100))
    content = judge(SPACE, [trials], [START])
    assert not content["told"] and "No policy is told apart from uniform" in content["sentence"]
    assert content["apply_probability"] == [pytest.approx(0.35), 0.4]


def test_a_policy_keeps_its_verdict(tmp_path):
    content = judge(SPACE, [made_up(0, {"Rotate90": 4.0})], [START])
    uniform = np.full((1, len(SPACE)), 1 / len(SPACE))
    schedule = PolicySchedule(SPACE, [0.4], uniform, verdict=content)
    schedule.save(tmp_path / "policy.json")
    assert PolicySchedule.load(tmp_path / "policy.json").verdict == content
