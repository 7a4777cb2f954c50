"""The bar and the lines say the same things."""

from __future__ import annotations

import io

import numpy as np
import pytest

from ddas_gpu import SearchSpace
from ddas_gpu.runs import progress
from ddas_gpu.runs.progress import Progress, top_candidates

SPACE = SearchSpace.of(("Identity", "Invert", "Rotate"), levels=(8,))
PROBABILITIES = np.array([0.25, 0.15, 0.6])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def step(number: int) -> dict:
    return {
        **{"epoch": number // 4, "step": number, "images": 100},
        **{"loss": 1.25, "apply_probability": 0.345},
    }


def told(stream: io.StringIO, steps: int, done: int = 0) -> str:
    with Progress(SPACE, done, 8, 4, stream) as shown:
        for number in range(done, done + steps):
            shown.update(step(number), PROBABILITIES)
    return stream.getvalue()


def test_top_candidates_in_multiples_of_uniform():
    assert top_candidates(SPACE, PROBABILITIES, 2) == "Rotate 8 1.80×, Identity 0.75×"
    assert top_candidates(SPACE, -PROBABILITIES, 1) == "Invert 0.45×"


def test_a_line_an_epoch_off_a_terminal():
    lines = told(io.StringIO(), 8).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("epoch 1, step 4/8: loss 1.250, p_tp 0.345, top Rotate 8 1.80×")
    assert "images/s" in lines[0]
    assert lines[1].endswith("0 s left")


def test_a_line_within_long_epochs(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    assert len(told(io.StringIO(), 3).splitlines()) == 3


@pytest.mark.parametrize(("done", "steps"), [(0, 8), (6, 2)])
def test_a_bar_on_a_terminal(monkeypatch, done, steps):
    monkeypatch.setenv("COLUMNS", "160")
    shown = told(Terminal(), steps, done)
    assert "\r" in shown
    last = shown.split("\r")[-1]
    for part in ("100%", "8/8", "loss 1.250", "p_tp 0.345", "Rotate 8 1.80×", "images/s"):
        assert part in last
