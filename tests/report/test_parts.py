from __future__ import annotations

import json
from pathlib import Path

from run_folders import Page, write_run

from ddas_gpu.report.html import el
from ddas_gpu.report.parts import data_table, settings_of
from ddas_gpu.report.run import load_run


def test_settings_are_written_for_people(tmp_path: Path):
    write_run(tmp_path)
    given = {"weight_decay": 5e-4, "root": None, "resume": False, "levels": [4, 8], "steps": []}
    config = {"settings": given, "versions": {"ddas_gpu": "0.1.0"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert settings_of(load_run(tmp_path)) == {
        "weight decay": "0.0005",
        "root": "–",
        "resume": "no",
        "levels": "4, 8",
        "steps": "–",
        "version of ddas_gpu": "0.1.0",
    }


def test_a_table_that_scrolls_can_be_reached_and_has_a_name():
    page = Page(data_table("Every op", ("op", "p"), [el("tr", el("td", 1), el("td", 2))]))
    (region,) = page.all("div")
    assert (region["role"], region["aria-label"], region["tabindex"]) == ("region", "Every op", "0")
    assert [head["scope"] for head in page.all("th")] == ["col", "col"]
