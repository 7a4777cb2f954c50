from __future__ import annotations

import numpy as np
import pytest

from ddas_gpu.report import numbers
from ddas_gpu.space import SearchSpace

SPACE = SearchSpace.of(["Invert", "Rotate", "Color"], levels=[2, 6])


def test_groups_cover_the_space_in_its_order():
    found = numbers.groups(SPACE)
    assert [group.op for group in found] == ["Invert", "Rotate", "Color"]
    assert [i for group in found for i in group.indices] == list(range(5))


def test_groups_gather_an_op_whose_candidates_lie_apart():
    space = SearchSpace((SPACE[1], SPACE[0], SPACE[2]))
    assert numbers.groups(space)[0] == numbers.OpGroup("Rotate", (0, 2))


def test_op_ratios_are_means_over_levels_relative_to_uniform():
    p_o = np.array([0.1, 0.3, 0.2, 0.2, 0.2])
    assert numbers.op_ratios(SPACE, p_o) == pytest.approx(
        {"Invert": 0.5, "Rotate": 1.25, "Color": 1.0}
    )


def test_rose_and_sank_name_only_what_moved():
    rose, sank = numbers.rose_and_sank({"a": 1.5, "b": 1.01, "c": 0.5, "d": 0.9, "e": 2.0})
    assert (rose, sank) == (["e", "a"], ["c", "d"])


def test_rose_and_sank_never_share_a_name():
    assert numbers.rose_and_sank({"a": 1.0}) == ([], [])


@pytest.mark.parametrize(
    ("needed", "limit"), [(1.0, 1.1), (1.4, 1.5), (2.0, 2.0), (5.0, 6.0), (1e4, 64.0)]
)
def test_the_scale_holds_the_ratios_on_both_sides(needed: float, limit: float):
    assert numbers.scale_limit(np.array([1.0, needed])) == limit
    assert numbers.scale_limit(np.array([1.0, 1 / needed])) == limit


def test_a_probability_of_zero_has_a_place_on_the_scale():
    assert np.isfinite(numbers.log2(0.0))


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.66, "+66"), (0.6, "−40"), (1.0, "±0"), (0.999, "±0"), (5.0, "+400")]
)
def test_change(ratio: float, text: str):
    assert numbers.change(ratio) == f"{text}{numbers.THIN}%"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0123, "12 ms"),
        (2.5, "2.5 s"),
        (59.7, "1 min 0 s"),
        (119, "1 min 59 s"),
        (3661, "1 h 1 min"),
    ],
)
def test_duration(seconds: float, text: str):
    assert numbers.duration(seconds).replace(numbers.THIN, " ") == text


def test_words():
    assert numbers.in_words(["a"]) == "a"
    assert numbers.in_words(["a", "b"]) == "a and b"
    assert numbers.in_words(["a", "b", "c"]) == "a, b and c"
    assert numbers.count(1, "step") == "1 step"
    assert numbers.count(1260, "step") == "1,260 steps"
    assert numbers.signed(-0.2) == "−0.20"


def test_close_shares_are_told_apart():
    texts = numbers.share_from_to(np.array([0.35, 0.346]))
    assert [text.replace(numbers.THIN, " ") for text in texts] == ["35.0 %", "34.6 %"]
    texts = numbers.share_from_to(np.array([0.35, 0.2]))
    assert [text.replace(numbers.THIN, " ") for text in texts] == ["35 %", "20 %"]
