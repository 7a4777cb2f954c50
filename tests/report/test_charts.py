from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from run_folders import Page

from ddas_gpu.report import charts
from ddas_gpu.report.charts import Line, line_chart, round_step, stacked_bar

VALUES = st.floats(-1e9, 1e9)


def draw(*lines: Line, **options) -> Page:
    options = {"label": "a chart", "x_label": "epoch", "show": str, "mark": str, **options}
    return Page(line_chart(lines, **options))


@given(st.lists(VALUES, min_size=1, max_size=20), st.floats(0, 10))
def test_ticks_are_few_increasing_and_around_the_values(values: list[float], span: float):
    ticks = charts._ticks(np.array(values), span)
    assert 2 <= len(ticks) <= 7
    assert all(a < b for a, b in pairwise(ticks))
    slack = 1e-6 * (ticks[-1] - ticks[0])
    assert ticks[0] <= min(values) + slack and max(values) - slack <= ticks[-1]
    assert ticks[-1] - ticks[0] >= span - slack
    assert ticks[0] >= 0 or min(values) < 0


@given(st.floats(0.1, 1e7), st.integers(1, 10))
def test_round_step_is_the_smallest_that_fits(end: float, most: int):
    step = round_step(end, most)
    assert end / step <= most
    assert str(step).rstrip("0") in ("1", "2", "5")
    smaller = step * 2 // 5 if str(step)[0] == "5" else step // 2
    assert step == 1 or end / smaller > most


def test_lines_lie_inside_the_drawing_and_name_their_values():
    x = np.arange(1.0, 6.0)
    page = draw(Line("first", x, x**2, 0), Line("second", x, -x, 1))
    for path in page.all("path"):
        for pair in path["d"].replace("M", " ").replace("L", ",").replace("h0", ",").split(","):
            if "H" not in pair and len(pair.split()) == 2:
                px, py = map(float, pair.split())
                assert 0 <= px <= charts.WIDTH and 0 <= py <= charts.HEIGHT
    assert "first 25.0" in page.words() and "second -5.0" in page.words()
    (plot,) = (tag for tag in page.all("div") if tag.get("class") == "plot")
    assert [line["name"] for line in json.loads(plot["data-lines"])] == ["first", "second"]


def test_a_missing_value_is_a_gap():
    x = np.arange(1.0, 5.0)
    page = draw(Line("loss", x, np.array([1, np.nan, 2, 3]), 0))
    (line,) = (path["d"] for path in page.all("path") if path["class"] == "line s1")
    assert line.count("M") == 2 and "nan" not in page.html


def test_a_long_line_is_thinned_and_keeps_its_ends():
    x = np.linspace(0, 10, 100_000)
    page = draw(Line("steps", x, x, 0, faint=True))
    assert len(page.html) < 10_000


def test_a_single_epoch_and_a_constant_can_be_drawn():
    draw(Line("p", np.array([1.0]), np.array([0.35]), 0))
    draw(Line("p", np.arange(3.0) + 1, np.full(3, 1e6), 0))


def test_every_drawing_says_what_it_shows():
    page = draw(Line("p", np.array([1.0]), np.array([0.35]), 0))
    assert [svg["aria-label"] for svg in page.all("svg")] == ["a chart"]
    assert Page(stacked_bar([("dot", 1.0)], label="time")).all("div")[0]["aria-label"] == "time"


def test_the_parts_of_a_bar_grow_with_their_shares():
    page = Page(stacked_bar([("augment", 0.25), ("dot", 0.75)], label="time"))
    assert [part["style"] for part in page.all("span")] == [
        "flex-grow:0.25000",
        "flex-grow:0.75000",
    ]
