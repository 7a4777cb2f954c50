"""In a real browser, at the width of a phone and of a desktop, no texts collide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import browser
import pytest
from run_folders import write_run
from training_folders import write_seeds

from ddas_gpu.report.comparison import comparison_page
from ddas_gpu.report.page import report_page
from ddas_gpu.report.run import load_run
from ddas_gpu.report.training_comparison import training_comparison
from ddas_gpu.report.training_run import load_training
from ddas_gpu.space import SearchSpace

pytestmark = pytest.mark.skipif(
    browser.COMMAND is None, reason=f"no browser: none of {', '.join(browser.NAMES)} is installed"
)
LONG = "/data/a/very/long/path/to/some/data/set/cifar-10-batches-py"


def search(folder: Path, space: str, epochs: int, **settings) -> str:
    space = SearchSpace.preset(space)
    return report_page(load_run(write_run(folder, space=space, epochs=epochs, **settings)))


def comparison(folder: Path) -> str:
    return comparison_page([load_run(write_run(folder / n, seed=k)) for k, n in enumerate("abc")])


def trainings(folder: Path) -> str:
    runs = [
        load_training(run)
        for name in ("none", "trivialaugment-wide")
        for run in write_seeds(folder / name, name, [0.8, 0.805, 0.81])
    ]
    return training_comparison(runs)


PAGES: dict[str, Callable[[Path], str]] = {
    "digits": lambda folder: search(folder, "digits", 8),
    "cifar": lambda folder: search(folder, "cifar", 40, root=LONG),
    "coco": lambda folder: search(folder, "coco", 12, samples=0),
    "one epoch": lambda folder: search(folder, "sanity", 1),
    "comparison": comparison,
    "trainings": trainings,
}


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_no_texts_collide(tmp_path: Path, name: str, width: int):
    found = browser.measured(PAGES[name](tmp_path / "run"), width)
    assert found["width"] == width and len(found["texts"]) > 30
    assert browser.touching(found["texts"]) == []
    assert [text["text"] for text in found["texts"] if text["cut"]] == []
    assert found["page"] <= width, "the page scrolls sideways"


def test_collisions_are_found():
    """The measurement sees what it is meant to see."""
    cell = "<td style='padding:0;white-space:nowrap'>{}</td>"
    page = (
        "<!DOCTYPE html><html><body><table style='width:10px;border-spacing:0'><tr>"
        + cell.format("TranslateX")
        + cell.format("86.2 %")
        + "</tr></table><p style='width:9000px'>wide</p>"
        "<p style='width:20px;overflow:hidden;white-space:nowrap'>cut off here</p></body></html>"
    )
    found = browser.measured(page, 360)
    assert browser.touching(found["texts"]) == [("TranslateX", "86.2 %")]
    assert [text["text"] for text in found["texts"] if text["cut"]] == ["cut off here"]
    assert found["page"] > 360
