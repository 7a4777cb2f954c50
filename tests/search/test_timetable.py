"""When `OnlineSearch` searches."""

from __future__ import annotations

import pytest

from ddas_gpu.search.timetable import Timetable


def searched(times: Timetable) -> list[int]:
    """Return the steps that have a search."""
    found: list[int] = []
    for step in range(times.steps):
        if times.due(step, len(found)):
            found.append(step)
    return found


@pytest.mark.parametrize(
    ("steps", "searches"), [(1, 1), (63, 1), (640, 10), (4_800, 75), (38_400, 600), (78_000, 1_000)]
)
def test_with_the_number_of_steps_alone_it_comes_early(steps, searches):
    times = Timetable.of(steps, None, None, None)
    assert times.planned == searches
    assert searched(times) == [times.warmup + n for n in range(searches)]
    assert times.warmup == steps // 30


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ((None, None, None, None), [0, 64, 128]),
        ((300, None, 64, None), [0, 64, 128]),
        ((300, 10, None, None), [10, 74, 138]),
        ((300, 10, 2, None), [10, 12, 14]),
        ((300, 0, 5, 2), [0, 5]),
        ((300, None, None, 2), [0, 64]),
    ],
)
def test_what_is_given_holds(given, first):
    times = Timetable.of(*given)
    assert searched(times)[:3] == first
    assert times.planned in (len(searched(times)), len(searched(times)) - 1)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((0, None, None, None), "steps must be at least 1, not 0"),
        ((9, -1, None, None), "warmup must be at least 0, not -1"),
        ((9, None, 0, None), "every must be at least 1, not 0"),
        ((9, None, None, 0), "searches must be at least 1, not 0"),
        ((20, 20, None, None), "a warmup of 20 steps leaves none of 20 to search in"),
    ],
)
def test_mistakes_are_named(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        Timetable.of(*given)
