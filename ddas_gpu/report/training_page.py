"""The page of one training."""

from __future__ import annotations

import numpy as np

from ddas_gpu.report.charts import Line, colour, line_chart, stacked_bar
from ddas_gpu.report.html import Html, document, el
from ddas_gpu.report.numbers import count, duration, percent, share_from_to, short_percent
from ddas_gpu.report.parts import data_table, section, settings_of
from ddas_gpu.report.samples import sample_sheet
from ddas_gpu.report.training_run import TrainingRun
from ddas_gpu.report.training_scores import known


def training_page(run: TrainingRun) -> str:
    """The whole page, as HTML."""
    sections = [_curves(run), _policy(run), _time(run), _settings(run), _table(run)]
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
        notes.append(f"This run is not finished: {run.epochs} of {settings['epochs']} epochs.")
    return el(
        "header",
        el("p", "ddas_gpu · training report", class_="eyebrow"),
        el("h1", run.words.headline.format(run.words.show(run.best_score))),
        el("p", summary, class_="summary"),
        [el("p", note, class_="note", role="note") for note in notes],
        _tiles(run),
    )


def _took(run: TrainingRun) -> str:
    return duration(sum(run.seconds.values()))


def _tiles(run: TrainingRun) -> Html:
    seconds, images = sum(run.seconds.values()), np.nansum(run.numbers["images"])
    tiles = [
        *run.words.tiles(run),
        ("time", _took(run), f"{images / max(seconds, 1e-9):,.0f} images/s"),
    ]
    if run.schedule is not None:
        first, last = share_from_to(run.numbers["apply_probability"])
        tiles.append(("images augmented", last, f"from {first}"))
    return el(
        "dl",
        [el("div", el("dt", a), el("dd", b), el("dd", c, class_="small")) for a, b, c in tiles],
        class_="tiles",
    )


def _curves(run: TrainingRun) -> Html:
    def chart(title: str, names: dict[str, str], **options: object) -> Html | None:
        lines = []
        for n, (key, name) in enumerate(names.items()):
            epochs, values = known(run.numbers[key]), run.numbers[key]
            if len(epochs):
                lines.append(Line(name, epochs + 1.0, values[epochs], n))
        if not lines:
            return None
        drawn = line_chart(lines, label=f"{title} by epoch", x_label="epoch", **options)
        return el("div", el("h3", title), drawn)

    words = run.words
    scores = {"show": words.show, "mark": words.mark, "least_span": 0.01}
    shares = {"show": lambda p: percent(p, 2), "mark": short_percent, "least_span": 0.01}
    plain = {"show": "{:.3f}".format, "mark": "{:g}".format}
    charts = [
        *(chart(title, names, **scores) for title, names in words.charts.items()),
        chart("Loss", {"test_loss": "test", "loss": "training, augmented"}, **plain),
        chart("Learning rate", {"learning_rate": "SGD"}, show="{:.2g}".format, mark="{:g}".format),
    ]
    if run.schedule is not None:
        charts.append(
            chart("Share of images augmented, p_tp", {"apply_probability": "p_tp"}, **shares)
        )
    lead = "Training numbers are means over the steps of an epoch, on the images as augmented."
    return section("How the training went", lead, el("div", charts, class_="columns"))


def _policy(run: TrainingRun) -> Html | None:
    if run.schedule is None or run.samples is None:
        return None
    lead = "Training images under policies of the first and of the last entry of the schedule."
    if len(run.schedule.p_tp) == 1:
        lead = "Training images under policies that the schedule has for every epoch."
    return section("What the network saw", lead, sample_sheet(run.schedule, run.samples))


def _time(run: TrainingRun) -> Html | None:
    total = sum(run.seconds.values())
    if not total:
        return None
    shares = [(name, seconds / total) for name, seconds in run.seconds.items()]
    rows = [
        el(
            "tr",
            el("th", el("i", class_=f"key {colour(n)}", aria_hidden="true"), name, scope="row"),
            el("td", percent(share, 1), class_="number"),
            el("td", duration(share * total), class_="number"),
        )
        for n, (name, share) in enumerate(shares)
    ]
    label = ", ".join(f"{name} {percent(share, 1)}" for name, share in shares)
    head = el("tr", [el("th", name, scope="col") for name in ("stage", "share", "in all")])
    return section(
        "Where the time went",
        None,
        stacked_bar(shares, label=f"Time by stage: {label}"),
        el("table", el("thead", head), el("tbody", rows), class_="stages"),
    )


def _settings(run: TrainingRun) -> Html:
    entries = [el("div", el("dt", k), el("dd", v)) for k, v in settings_of(run).items()]
    return section("Settings", None, el("dl", entries, class_="settings"))


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
