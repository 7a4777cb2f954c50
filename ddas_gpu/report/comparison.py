"""The page that compares several runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from ddas_gpu.report.charts import Line, line_chart
from ddas_gpu.report.correlation import rank_agreement
from ddas_gpu.report.heatmap import shade
from ddas_gpu.report.html import Html, document, el
from ddas_gpu.report.numbers import (
    count,
    in_words,
    op_ratios,
    percent,
    ratios,
    rose_and_sank,
    scale_limit,
    short_percent,
    signed,
    times,
)
from ddas_gpu.report.parts import data_table, section, settings_of
from ddas_gpu.report.reading import RecordedRun
from ddas_gpu.report.run import Run


def comparison_page(runs: Sequence[Run]) -> str:
    """Return two or more runs side by side, as HTML."""
    if len(runs) < 2:
        raise ValueError(f"a comparison needs two runs or more, not {len(runs)}")
    names = distinct_names(runs)
    ops = _shared_ops(runs)
    return document(
        f"{len(runs)} runs · ddas_gpu",
        _header(runs, names, ops),
        _share(runs, names),
        _table(runs, names, ops),
        _agreement(runs, names, ops),
        _settings(runs, names),
    )


def distinct_names(runs: Sequence[RecordedRun]) -> list[str]:
    """Return folder names, with as much of their paths as makes them distinct."""
    folders = [run.folder.resolve() for run in runs]
    for parts in range(1, max(len(folder.parts) for folder in folders) + 1):
        names = [os.sep.join(folder.parts[-parts:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    raise ValueError("the same run is given twice; a comparison needs different runs")


def _shared_ops(runs: Sequence[Run]) -> list[dict[str, float]]:
    """Return the ratios of each run for the ops that all have, in the order of the first."""
    every = [op_ratios(run.schedule.space, run.schedule.p_o[-1]) for run in runs]
    shared = [op for op in every[0] if all(op in other for other in every)]
    if not shared:
        raise ValueError("these runs cannot be compared: they have no op in common")
    return [{op: values[op] for op in shared} for values in every]


def _means(ops: list[dict[str, float]]) -> dict[str, float]:
    return {op: float(np.mean([values[op] for values in ops])) for op in ops[0]}


def _header(runs: Sequence[Run], names: list[str], ops: list[dict[str, float]]) -> Html:
    rose = [op for op in ops[0] if all(values[op] > 1.05 for values in ops)]
    sank = [op for op in ops[0] if all(values[op] < 0.95 for values in ops)]
    means = _means(ops)
    rose.sort(key=means.__getitem__, reverse=True)
    sank.sort(key=means.__getitem__)
    where = "In every run"
    if not rose and not sank:
        where, (rose, sank) = "On average", rose_and_sank(means)
    parts = [f"{in_words(rose[:3])} rose"] * bool(rose)
    parts += [f"{in_words(sank[:3])} sank"] * bool(sank)
    headline = f"{where} {'; '.join(parts)}" if parts else "No op moved the same way in these runs"
    ends = [run.schedule.p_tp[-1] for run in runs]
    low, high = percent(min(ends)), percent(max(ends))
    spread = low if low == high else f"{low} to {high}"
    text = (
        f"{len(runs)} runs over {len(ops[0])} ops in common. "
        f"The share of augmented images ends at {spread}."
    )
    return el(
        "header",
        el("p", "ddas_gpu · comparison", class_="eyebrow"),
        el("h1", headline, "."),
        el("p", text, class_="summary"),
        [
            el(
                "p",
                f"{name} is not finished: {run.epochs} of {count(run.planned_epochs, 'epoch')}.",
                class_="note",
            )
            for name, run in zip(names, runs, strict=True)
            if run.unfinished
        ],
    )


def _share(runs: Sequence[Run], names: list[str]) -> Html:
    lines = [
        Line(
            name,
            np.arange(1, run.epochs + 1, dtype=float),
            run.schedule.p_tp,
            n,
        )
        for n, (name, run) in enumerate(zip(names, runs, strict=True))
    ]
    chart = line_chart(
        lines,
        label=f"Share of images to augment by epoch, for {in_words(names)}",
        x_label="epoch",
        show=lambda p: percent(p, 1),
        mark=short_percent,
        least_span=0.04,
    )
    return section("Share of images to augment, p_tp", None, chart)


def _table(runs: Sequence[Run], names: list[str], ops: list[dict[str, float]]) -> Html:
    means = _means(ops)
    limit = scale_limit(np.array([list(values.values()) for values in ops]))
    rows = []
    for op in sorted(means, key=means.__getitem__, reverse=True):
        values = [*(each[op] for each in ops), means[op]]
        cells = [
            el("td", times(v), class_=f"number {shade(v, limit)}", data_value=f"{v:.9g}")
            for v in values
        ]
        rows.append(el("tr", el("th", op, scope="row"), cells))
    lead = "Mean over an op's levels after the last epoch, relative to the uniform 1/K."
    table = data_table("Op by op", ("op", *names, "mean"), rows, sortable=True)
    return section("Op by op", lead, table, class_="tinted")


def _candidates(run: Run) -> dict[str, float]:
    relative = ratios(run.schedule.p_o[-1])
    return {str(c): float(v) for c, v in zip(run.schedule.space, relative, strict=True)}


def _agreement(runs: Sequence[Run], names: list[str], ops: list[dict[str, float]]) -> Html:
    candidates = [_candidates(run) for run in runs]
    rows, found = [], []
    for a, b in combinations(range(len(runs)), 2):
        shared = [name for name in candidates[a] if name in candidates[b]]
        by_op = rank_agreement(list(ops[a].values()), list(ops[b].values()))
        by_candidate = rank_agreement(
            [candidates[a][name] for name in shared], [candidates[b][name] for name in shared]
        )
        found.append(by_op)
        cells = [
            el("td", "–" if pair is None else signed(pair[n]), class_="number")
            for pair in (by_op, by_candidate)
            for n in (0, 1)
        ]
        rows.append(el("tr", el("th", f"{names[a]} – {names[b]}", scope="row"), cells))
    known = [pair[0] for pair in found if pair is not None]
    lead = "1 means the same order, 0 none in common, −1 the reverse."
    if known:
        lead = f"Over the ops, Spearman's ρ is {signed(float(np.mean(known)))} on average. {lead}"
    heads = ("runs", "ops ρ", "ops τ", "candidates ρ", "candidates τ")
    return section("Do the runs agree?", lead, data_table("Rank agreement", heads, rows))


def _settings(runs: Sequence[Run], names: list[str]) -> Html:
    tables = [settings_of(run) for run in runs]
    rows = []
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [table.get(key, "–") for table in tables]
        if len(set(values)) > 1:
            cells = [el("td", value) for value in values]
            rows.append(el("tr", el("th", key, scope="row"), cells))
    if not rows:
        return section("Settings that differ", "None: the runs have the same settings.")
    table = data_table("Settings that differ", ("setting", *names), rows)
    return section("Settings that differ", None, table)
