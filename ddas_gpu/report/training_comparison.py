"""The page that compares several trainings: policies side by side, their seeds together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddas_gpu.report.charts import Interval, Line, interval_chart, line_chart
from ddas_gpu.report.comparison import distinct_names
from ddas_gpu.report.html import Html, document, el
from ddas_gpu.report.numbers import MINUS, count, in_words
from ddas_gpu.report.parts import data_table, section
from ddas_gpu.report.score_differences import ScoreComparison, capital, in_a_sentence
from ddas_gpu.report.seeds import grouped
from ddas_gpu.report.training_run import TrainingRun

SHOWN = ("policy", "data", "model", "epochs")


def training_comparison(runs: Sequence[TrainingRun]) -> str:
    """Return two or more trainings side by side, as HTML."""
    words = runs[0].words
    if any(run.words is not words for run in runs):
        raise ValueError("classifiers and detectors cannot be compared: give the runs of one kind")
    return comparison_of(ScoreComparison(grouped(runs, distinct_names(runs))))


def comparison_of(found: ScoreComparison) -> str:
    """Return the page of a comparison, as HTML."""
    sections = [_scores(found), _differences(found), _curves(found), _settings(found), _runs(found)]
    footer = el("footer", "Made by ddas_gpu, which learns how to augment a data set.")
    title = f"{count(sum(len(group.runs) for group in found.groups), 'training')} · ddas_gpu"
    return document(title, _header(found), sections, footer)


def _header(found: ScoreComparison) -> Html:
    runs = sum(len(group.runs) for group in found.groups)
    many = f"{count(runs, 'training')}, {count(len(found.groups), 'setting')}"
    fewest, most = found.seeds, max(len(group.runs) for group in found.groups)
    each = count(most, "seed") if fewest == most else f"{fewest} to {most} seeds"
    one = found.groups[0].first
    setting = " on ".join(str(one.settings.get(key, "")) for key in ("model", "data"))
    lines = [f"{many}, {each} each, {setting}. The score is that of {_chosen(found)}."]
    unfinished = [
        f"{group.name}, seed {seed}"
        for group in found.groups
        for seed, run in group.runs.items()
        if run.unfinished
    ]
    keeps = found.keeps()
    notes = [
        found.advice(),
        keeps and f"{keeps}.",
        unfinished and f"Not finished: {in_words(unfinished)}.",
    ]
    return el(
        "header",
        el("p", "ddas_gpu · comparison", class_="eyebrow"),
        el("h1", found.headline(), "."),
        [el("p", line, class_="summary") for line in lines],
        [el("p", note, class_="note", role="note") for note in notes if note],
    )


def _chosen(found: ScoreComparison) -> str:
    validated = found.groups[0].first.validation is not None
    return "the epoch that is best on validation images" if validated else "the last epoch"


def _scores(found: ScoreComparison) -> Html:
    rows = []
    for n, group in enumerate(found.groups):
        spread, values = found.spreads[group.name], tuple(found.scores[group.name].values())
        half = 0.0 if spread.seeds < 2 else spread.error
        shown = found.mean_of(group.name)
        rows.append(Interval(group.name, spread.mean, half, shown, n, values))
    lead = "A dot is a seed, the bar the mean ± its standard error."
    chart = interval_chart(rows, mark=found.words.mark)
    return section(f"Test {found.words.name}", lead, chart)


def _differences(found: ScoreComparison) -> Html | None:
    if not found.differences or not found.comparable:
        return None
    series = {group.name: n for n, group in enumerate(found.groups)}
    rows = []
    for difference in found.differences:
        spread, n = difference.spread, series[difference.theirs]
        if spread is None:
            continue
        half = 0.0 if spread.seeds < 2 else spread.half
        shown = f"{'+' if spread.mean > 0 else MINUS}" if round(spread.mean, 6) else ""
        shown += found.words.difference(abs(spread.mean), None if spread.seeds < 2 else half)
        ours, theirs = (found.scores[name] for name in (difference.ours, difference.theirs))
        values = tuple(ours[seed] - theirs[seed] for seed in ours if seed in theirs)
        rows.append(Interval(f"to {difference.theirs}", spread.mean, half, shown, n, values))
    sentences = [
        el("li", capital("; ".join(filter(None, (d.sentence, d.outlook)))), ".")
        for d in found.differences
    ]
    lead = (
        f"The score of {in_a_sentence(found.subject)} minus that of the others, seed by seed: the "
        "same seed means the same images, first weights and order. The bar is the 95 % interval "
        "of the mean (Student's t). It is over seeds, not over other test images."
    )
    if not found.is_chosen and len(rows) > 1:
        lead += f" All {len(rows)} intervals hold at once (Bonferroni)."
    chart = interval_chart(rows, mark=found.words.mark, zero=True) if rows else None
    return section("Differences", lead, chart, el("ul", sentences, class_="sentences"))


def _curves(found: ScoreComparison) -> Html:
    words, lines = found.words, []
    for n, group in enumerate(found.groups):
        runs = list(group.runs.values())
        for run in runs if len(runs) > 1 else []:
            epochs = run.tested_epochs
            values = run.numbers[words.score.tested][epochs]
            lines.append(Line("", epochs + 1.0, values, n, faint=True))
        shortest = min(run.epochs for run in runs)
        mean = np.mean([run.numbers[words.score.tested][:shortest] for run in runs], axis=0)
        epochs = np.flatnonzero(np.isfinite(mean))
        if len(epochs):
            lines.append(Line(group.name, epochs + 1.0, mean[epochs], n))
    chart = line_chart(
        lines,
        label=f"Test {words.name} by epoch",
        x_label="epoch",
        show=words.show,
        mark=words.mark,
        least_span=0.01,
    )
    lead = "Means over the seeds; the faint lines are single trainings."
    return section("By epoch", lead if any(line.faint for line in lines) else None, chart)


def _settings(found: ScoreComparison) -> Html:
    rows = []
    for group in found.groups:
        numbers = (len(group.runs), found.mean_of(group.name))
        row = [el("td", text, class_="number") for text in numbers]
        texts = [str(group.first.settings.get(key, "–")) for key in SHOWN]
        rows.append(el("tr", el("th", group.name, scope="row"), row, [el("td", t) for t in texts]))
    heads = ("setting", "seeds", f"{found.words.name}, mean ± standard error", *SHOWN)
    return section("The settings", None, data_table("The settings", heads, rows, sortable=True))


def _runs(found: ScoreComparison) -> Html:
    rows = []
    for group in found.groups:
        for run in group.runs.values():
            cells = (run.settings.get("seed", "–"), found.words.show(run.score), run.chosen_words)
            row = [el("td", cell, class_="number") for cell in cells]
            rows.append(el("tr", el("th", group.name, scope="row"), row))
    table = data_table("Every training", ("setting", "seed", found.words.name, "after"), rows)
    return section("All numbers", None, el("details", el("summary", "Every training"), table))
