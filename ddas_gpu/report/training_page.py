"""The page of one training."""

from __future__ import annotations

import numpy as np

from ddas_gpu.report.charts import Line, line_chart
from ddas_gpu.report.html import Html, document, el
from ddas_gpu.report.numbers import (
    count,
    duration,
    percent,
    share_from_to,
    short_percent,
    since_start,
)
from ddas_gpu.report.parts import data_table, section, settings_list, tiles, time_by_stage
from ddas_gpu.report.samples import sample_sheet
from ddas_gpu.report.training_run import TrainingRun
from ddas_gpu.report.training_scores import Show, known


def training_page(run: TrainingRun) -> str:
    """Return the whole page, as HTML."""
    sections = [_curves(run), _policy(run), _time(run), settings_list(run), _table(run)]
    footer = el("footer", "Made by ddas_gpu, which learns how to augment a data set.")
    return document(f"{run.name} · ddas_gpu", _header(run), sections, footer)


def _header(run: TrainingRun) -> Html:
    settings = run.settings
    data, model = settings.get("data", "the data"), settings.get("model", "A network")
    policy = settings.get("policy", "none")
    under = "without a policy" if policy == "none" else f"under the policy {policy}"
    summary = f"{model} on {data}, {under}: {count(run.epochs, 'epoch')} in {_took(run)}."
    notes = []
    if run.unfinished:
        notes.append(f"This run is not finished: {run.epochs} of {run.planned_epochs} epochs.")
    return el(
        "header",
        el("p", "ddas_gpu · training report", class_="eyebrow"),
        el("h1", run.words.headline.format(run.words.show(run.score))),
        el("p", summary, class_="summary"),
        [el("p", note, class_="note", role="note") for note in notes],
        _tiles(run),
    )


def _took(run: TrainingRun) -> str:
    return duration(sum(run.seconds.values()))


def _tiles(run: TrainingRun) -> Html:
    seconds, images = sum(run.seconds.values()), np.nansum(run.numbers["images"])
    entries = [
        *run.words.tiles(run),
        ("time", _took(run), f"{images / max(seconds, 1e-9):,.0f} images/s"),
    ]
    if run.schedule is not None:
        shares = run.numbers["apply_probability"]
        last = share_from_to(shares)[1]
        entries.append(("images augmented", last, since_start(shares)))
    return tiles(entries)


def _curves(run: TrainingRun) -> Html:
    def chart(title: str, names: dict[str, str], show: Show, mark: Show, span: float = 0) -> Html:
        lines = []
        for n, (key, name) in enumerate(names.items()):
            epochs, values = known(run.numbers[key]), run.numbers[key]
            if len(epochs):
                lines.append(Line(name, epochs + 1.0, values[epochs], n))
        if not lines:
            return Html()
        drawn = line_chart(
            lines,
            label=f"{title} by epoch",
            x_label="epoch",
            show=show,
            mark=mark,
            least_span=span,
        )
        return el("div", el("h3", title), drawn)

    words, plain = run.words, "{:g}".format
    losses = {"test_loss": "test", "loss": "training, augmented"}
    charts = [
        *(
            chart(title, names, words.show, words.mark, 0.01)
            for title, names in words.charts.items()
        ),
        chart("Loss", losses, "{:.3f}".format, plain),
        chart("Learning rate", {"learning_rate": "SGD"}, "{:.2g}".format, plain),
    ]
    if run.schedule is not None:
        title, names = "Share of images augmented, p_tp", {"apply_probability": "p_tp"}
        charts.append(chart(title, names, lambda p: percent(p, 2), short_percent, 0.01))
    lead = "Training numbers are means over the steps of an epoch, on the augmented images."
    return section("How the training went", lead, el("div", charts, class_="columns"))


def _policy(run: TrainingRun) -> Html | None:
    if run.schedule is None or run.samples is None:
        return None
    lead = "Training images under policies of the first and of the last epoch."
    if len(run.schedule) == 1:
        lead = "Training images under policies that the schedule has for every epoch."
    sheet = sample_sheet(run.schedule, run.samples, run.epochs, run.planned_epochs)
    return section("What the network saw", lead, sheet)


def _time(run: TrainingRun) -> Html | None:
    return time_by_stage(None, run.seconds) if sum(run.seconds.values()) else None


def _table(run: TrainingRun) -> Html:
    columns = run.words.columns
    rows = []
    for epoch in range(run.epochs):
        values = [(run.numbers[key][epoch], write) for key, (_, write) in columns.items()]
        cells = [write(value) if np.isfinite(value) else "–" for value, write in values]
        row = [el("td", cell, class_="number") for cell in cells]
        rows.append(el("tr", el("th", epoch + 1, scope="row"), row))
    heads = ("epoch", *(name for name, _ in columns.values()))
    table = data_table("Every epoch", heads, rows)
    return section("All numbers", None, el("details", el("summary", "Every epoch"), table))
