"""The bar and the lines show the same numbers."""

from __future__ import annotations

import io

import pytest

from ddas_gpu.runs import progress
from ddas_gpu.runs.progress import Progress

STATUS = "loss 1.250, p_tp 0.345"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, steps: int, done: int = 0, status: str = STATUS) -> str:
    with Progress(done, 8, 4, lambda step: 100 * step, stream) as bar:
        for _ in range(steps):
            bar.update(status)
    return stream.getvalue()


def test_a_line_per_epoch_off_a_terminal():
    lines = shown(io.StringIO(), 8).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("epoch 1/2, step 4/8: loss 1.250, p_tp 0.345, ")
    assert "images/s" in lines[0]
    assert lines[1].startswith("epoch 2/2, step 8/8: ")
    assert lines[1].endswith(", 0 s left")


def test_cheaper_steps_at_the_start_do_not_count_as_much(monkeypatch):
    """A second per 100 images: four steps of 100, then four of 400."""
    clock = iter([0.0, 1.0, 2.0, 3.0, 4.0, 8.0, 12.0, 16.0, 20.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    stream = io.StringIO()
    with Progress(0, 8, 4, lambda step: 100 * step + 300 * max(0, step - 4), stream) as bar:
        for _ in range(8):
            bar.update("")
    half, *_, end = stream.getvalue().splitlines()
    assert half.endswith("4/8: 100 images/s incl. augmented, 16 s left")
    assert end.endswith("8/8: 100 images/s incl. augmented, 0 s left")


def test_a_job_without_numbers_yet():
    (line,) = shown(io.StringIO(), 4, status="").splitlines()
    assert line.startswith("epoch 1/2, step 4/8: ")
    assert ": ," not in line and "images/s" in line


def test_a_line_within_long_epochs(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    lines = shown(io.StringIO(), 3, done=3).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "epoch 1/2, step 4/8",
        "epoch 2/2, step 5/8",
        "epoch 2/2, step 6/8",
    ]


@pytest.mark.parametrize(("done", "steps"), [(0, 8), (6, 2)])
def test_a_bar_on_a_terminal(monkeypatch, done, steps):
    monkeypatch.setenv("COLUMNS", "160")
    text = shown(Terminal(), steps, done)
    assert "\r" in text
    last = text.split("\r")[-1]
    for part in ("100%", "8/8", "loss 1.250", "p_tp 0.345", "images/s"):
        assert part in last


LONG = "loss 1.144, p_tp 0.341, top AutoContrast 1.25×, Contrast 4 1.22×, accuracy 91.25 %"


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("total", [8, 120_000])
def test_the_bar_fits_the_terminal(monkeypatch, columns, total):
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = Terminal()
    with Progress(0, total, 4, lambda step: 100 * step, stream) as bar:
        for _ in range(8):
            bar.update(LONG)
    lines = stream.getvalue().replace("\n", "").split("\r")
    assert max(len(line) for line in lines) <= columns
    for line in filter(str.strip, lines):
        assert line.count("|") == 2
        if columns >= 60:
            assert line.index("|", line.index("|") + 1) - line.index("|") > 8  # the bar is visible


def test_what_fits_at_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    last = shown(Terminal(), 8, status=LONG).split("\r")[-1]
    assert "loss 1.144, p_tp 0.341" in last and "Contrast 4" not in last


def test_plain_lines_have_all_numbers():
    (line,) = shown(io.StringIO(), 4, status=LONG).splitlines()
    assert LONG in line and "images/s incl. augmented" in line


def test_without_a_width_there_are_80_columns(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert progress.columns_of(io.StringIO()) == 80
    monkeypatch.setenv("COLUMNS", "nonsense")
    assert progress.columns_of(io.StringIO()) == 80
