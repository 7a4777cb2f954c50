"""Which policies are compared, and under which names."""

from __future__ import annotations

import pytest

from ddas_gpu.compare.contenders import WITHOUT_SEARCH, Contender, contenders
from ddas_gpu.compare.settings import PEERS, compare_preset
from ddas_gpu.train.policies import open_policy
from ddas_gpu.train.settings import preset


def named(subject: str, *peers: str) -> dict[str, str]:
    return {one.name: one.policy for one in contenders(subject, peers)}


def test_uniform_has_the_candidates_and_p_tp_of_the_policy_in_question():
    found = contenders("runs/a", PEERS)
    assert [one.name for one in found] == ["none", "uniform", "trivialaugment", "searched"]
    assert found[1] == Contender("uniform", "uniform:runs/a", ablated=True)
    assert found[3] == Contender("searched", "runs/a", is_subject=True, ablated=True)
    assert not found[2].ablated


def test_commas_names_and_numbers():
    assert named("none", "none,uniform-0.35,randaugment-5", "runs/b/policy.json") == {
        "none": "none",
        "uniform-0.35": "uniform-0.35",
        "randaugment-5": "randaugment-5",
        "searched": "runs/b/policy.json",
    }
    assert list(named("released:cifar10", "mine=runs/a", "runs/b/policy.json", "c.json")) == [
        *("mine", "b", "c", "searched")
    ]
    assert list(named("trivialaugment-wide", "none", "trivialaugment-wide")) == [
        *("none", "trivialaugment-wide")
    ]


def test_without_a_searched_policy_there_is_none_in_question():
    assert not [one for one in contenders("none", PEERS) if one.is_subject]
    assert named("none", *PEERS)["uniform"] == "uniform"


@pytest.mark.parametrize(
    ("peers", "reason"),
    [
        (["none"], "two policies or more"),
        (["runs/a", "old/a", "none"], "has 'a' twice"),
        (["a/b=runs/a", "none"], "a name has letters"),
        ([".=runs/a", "none"], "a name has letters"),
    ],
)
def test_what_cannot_be_compared(peers, reason):
    with pytest.raises(ValueError, match=reason):
        contenders("none", peers)


def test_ablations_are_for_the_policy_in_question():
    settings = compare_preset().replace(policy="runs/a", static="last", seed=5)
    by_name = {one.name: settings.of_training(one, 2, None) for one in settings.contenders}
    static = {name: training.policy.static for name, training in by_name.items()}
    assert static == {"none": None, "uniform": "last", "trivialaugment": None, "searched": "last"}
    assert {training.run.seed for training in by_name.values()} == {7}


def test_free_stands_for_what_needs_no_search():
    found = contenders("none", ["free"])
    assert [one.name for one in found] == list(WITHOUT_SEARCH)
    schedules = [open_policy(preset().replace(policy=one.policy)) for one in found]
    assert schedules[0] is None and all(schedule is not None for schedule in schedules[1:])
