from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import Page, schedule

from ddas_gpu.report.heatmap import heat_map, op_strips, shade
from ddas_gpu.report.numbers import groups, ratios
from ddas_gpu.space import CLASSIFICATION, SearchSpace

LARGE = SearchSpace.of((*CLASSIFICATION, "Cutout"), levels=(2, 4, 6, 8, 10))  # K = 68


@given(st.floats(1.0, 100.0))
def test_shades_are_symmetric_about_uniform(ratio: float):
    up, down = shade(ratio, 2.0), shade(1 / ratio, 2.0)
    assert up[0] == "u" and down == (up if up == "u0" else f"d{up[1:]}")


def test_shades_end_at_the_limit():
    assert [shade(r, 2.0) for r in (0.0, 0.5, 1.0, 2.0, 9.0)] == ["d8", "d8", "u0", "u8", "u8"]


@pytest.mark.parametrize("epochs", [1, 2, 20, 40])
def test_the_heat_map_has_every_cell_once(epochs: int):
    found = schedule(LARGE, epochs)
    page = Page(heat_map(found))
    maps = page.all("svg")
    assert len(maps) == len(groups(LARGE))
    names = [name for svg in maps for name in json.loads(svg["data-names"])]
    assert names == [str(candidate) for candidate in LARGE]
    widths = [int(re.match(r"M\d+ \d+h(\d+)", p["d"])[1]) for p in page.all("path")]
    assert sum(widths) == epochs * len(LARGE)
    values = np.array([row for svg in maps for row in json.loads(svg["data-ratios"])])
    np.testing.assert_allclose(values, ratios(found.p_o).T, atol=6e-4)


def test_the_heat_map_names_first_and_last_epoch():
    marks = [int(t) for t in Page(heat_map(schedule(LARGE, 40))).words().split() if t.isdigit()]
    assert 1 in marks and 40 in marks


def test_the_strips_are_sorted_by_mean_and_show_every_level():
    found = schedule(LARGE, 5)
    page = Page(op_strips(found))
    means = [float(text[1:]) for text in page.text if re.fullmatch(r"×\d+\.\d\d", text)]
    assert means == sorted(means, reverse=True) and len(means) == len(groups(LARGE))
    dots = [path for path in page.all("path") if path.get("class") == "dot"]
    assert len(dots) == sum(c.level is not None for c in LARGE)


def test_a_candidate_that_is_never_drawn_has_a_place():
    space = SearchSpace.of(["Invert", "Blur"])
    found = schedule(space, 1)
    certain = type(found)(space, [0.5], [[0.0, 1.0]])
    for picture in (heat_map(certain), op_strips(certain)):
        assert "nan" not in picture and "inf" not in picture
