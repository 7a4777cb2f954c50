"""The page that compares several trainings: policies side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddas_gpu.reporting.charts import Line, line_chart
from ddas_gpu.reporting.comparison import distinct_names
from ddas_gpu.reporting.html import Html, document, el
from ddas_gpu.reporting.numbers import count, percent, short_percent
from ddas_gpu.reporting.parts import data_table, section
from ddas_gpu.reporting.training_run import TrainingRun

SHOWN = ("policy", "data", "model", "epochs", "seed")


def training_comparison(runs: Sequence[TrainingRun]) -> str:
    """Two or more trainings side by side, as HTML."""
    names = distinct_names(runs)
    best = max(range(len(runs)), key=lambda i: runs[i].best_accuracy)
    header = el(
        "header",
        el("p", "ddas_gpu · comparison", class_="eyebrow"),
        el("h1", f"{names[best]} tests best, {percent(runs[best].best_accuracy, 2)}."),
        el("p", f"{count(len(runs), 'training')} side by side.", class_="summary"),
    )
    sections = [_accuracies(runs, names), _table(runs, names)]
    return document(f"{len(runs)} trainings · ddas_gpu", header, sections)


def _accuracies(runs: Sequence[TrainingRun], names: list[str]) -> Html:
    lines = [
        Line(name, np.arange(1, run.epochs + 1, dtype=float), run.numbers["test_accuracy"], n)
        for n, (name, run) in enumerate(zip(names, runs, strict=True))
    ]
    chart = line_chart(
        lines,
        label="Test accuracy by epoch",
        x_label="epoch",
        show=lambda p: percent(p, 2),
        mark=short_percent,
        least_span=0.01,
    )
    return section("Test accuracy", None, chart)


def _table(runs: Sequence[TrainingRun], names: list[str]) -> Html:
    rows = []
    for name, run in zip(names, runs, strict=True):
        accuracy = run.numbers["test_accuracy"]
        numbers = (percent(run.best_accuracy, 2), percent(accuracy[-1], 2))
        texts = [str(run.settings.get(key, "–")) for key in SHOWN]
        row = [el("td", text, class_="number") for text in numbers]
        rows.append(el("tr", el("th", name, scope="row"), row, [el("td", t) for t in texts]))
    heads = ("run", "best accuracy", "last accuracy", *SHOWN)
    return section("The runs", None, data_table("The runs", heads, rows, sortable=True))
