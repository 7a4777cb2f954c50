"""The page that compares several trainings: policies side by side."""

from __future__ import annotations

from collections.abc import Sequence

from ddas_gpu.report.charts import Line, line_chart
from ddas_gpu.report.comparison import distinct_names
from ddas_gpu.report.html import Html, document, el
from ddas_gpu.report.numbers import count
from ddas_gpu.report.parts import data_table, section
from ddas_gpu.report.training_run import TrainingRun
from ddas_gpu.report.training_scores import ScoreWords

SHOWN = ("policy", "data", "model", "epochs", "seed")


def training_comparison(runs: Sequence[TrainingRun]) -> str:
    """Return two or more trainings side by side, as HTML."""
    words = runs[0].words
    if any(run.words is not words for run in runs):
        raise ValueError("classifiers and detectors cannot be compared: give the runs of one kind")
    names = distinct_names(runs)
    best = max(range(len(runs)), key=lambda i: runs[i].best_score)
    value = words.show(runs[best].best_score)
    header = el(
        "header",
        el("p", "ddas_gpu · comparison", class_="eyebrow"),
        el("h1", f"{names[best]} tests best, {words.name} {value}."),
        el("p", f"{count(len(runs), 'training')} side by side.", class_="summary"),
    )
    sections = [_scores(runs, names, words), _table(runs, names, words)]
    return document(f"{len(runs)} trainings · ddas_gpu", header, sections)


def _scores(runs: Sequence[TrainingRun], names: list[str], words: ScoreWords) -> Html:
    lines = []
    for n, (name, run) in enumerate(zip(names, runs, strict=True)):
        epochs = run.tested_epochs
        lines.append(Line(name, epochs + 1.0, run.numbers[words.score.tested][epochs], n))
    chart = line_chart(
        lines,
        label=f"Test {words.name} by epoch",
        x_label="epoch",
        show=words.show,
        mark=words.mark,
        least_span=0.01,
    )
    return section(f"Test {words.name}", None, chart)


def _table(runs: Sequence[TrainingRun], names: list[str], words: ScoreWords) -> Html:
    rows = []
    for name, run in zip(names, runs, strict=True):
        numbers = (words.show(run.best_score), words.show(run.last_score))
        texts = [str(run.settings.get(key, "–")) for key in SHOWN]
        row = [el("td", text, class_="number") for text in numbers]
        rows.append(el("tr", el("th", name, scope="row"), row, [el("td", t) for t in texts]))
    heads = ("run", f"best {words.name}", f"last {words.name}", *SHOWN)
    return section("The runs", None, data_table("The runs", heads, rows, sortable=True))
