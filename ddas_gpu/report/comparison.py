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
    log2,
    op_ratios,
    percent,
    ratios,
    scale_limit,
    short_percent,
    signed,
    times,
)
from ddas_gpu.report.parts import data_table, section, settings_of
from ddas_gpu.report.reading import RecordedRun
from ddas_gpu.report.run import Run
from ddas_gpu.report.seeds import Group, Spread, grouped, spread_of, told_apart

Ratios = dict[str, float]  # {op: its mean probability relative to uniform}


def comparison_page(runs: Sequence[Run]) -> str:
    """Return two or more runs side by side, as HTML; the seeds of one setting are one column."""
    if len(runs) < 2:
        raise ValueError(f"a comparison needs two runs or more, not {len(runs)}")
    names = distinct_names(runs)
    groups = grouped(runs, names)
    every = dict(zip(map(id, runs), _shared_ops(runs), strict=True))
    ops = [[every[id(run)] for run in group.runs.values()] for group in groups]
    return document(
        f"{len(runs)} runs · ddas_gpu",
        _header(groups, ops, dict(zip(names, runs, strict=True))),
        _share(groups),
        _table(groups, ops),
        _agreement(runs, names, list(every.values())),
        _settings(groups),
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


def _means(ops: list[Ratios]) -> Ratios:
    return {op: float(np.mean([values[op] for values in ops])) for op in ops[0]}


def _headline(ops: list[list[Ratios]]) -> str:
    """Return which ops moved: of several seeds, only what is told apart from uniform."""
    every = [values for group in ops for values in group]
    means = _means(every)
    seeds = [group for group in ops if len(group) > 1]
    if seeds:
        told = [_told(group) for group in seeds]
        moved = [op for op in means if all(op in found for found in told)]
        rose = [op for op in moved if all(found[op] > 0 for found in told)]
        sank = [op for op in moved if all(found[op] < 0 for found in told)]
        where = f"Over {count(sum(map(len, seeds)), 'seed')}"
    else:
        rose = [op for op in means if all(values[op] > 1.05 for values in every)]
        sank = [op for op in means if all(values[op] < 0.95 for values in every)]
        where = "In every run"
    rose.sort(key=means.__getitem__, reverse=True)
    sank.sort(key=means.__getitem__)
    parts = [f"{in_words(rose[:3])} rose"] * bool(rose)
    parts += [f"{in_words(sank[:3])} sank"] * bool(sank)
    if parts:
        return f"{where} {'; '.join(parts)}"
    if seeds:
        return f"{where} no op is told apart from uniform"
    return "No op moved the same way in these runs"


def _told(group: list[Ratios]) -> Ratios:
    """Return {op: mean of log2 of its ratio} for those that the seeds tell apart from uniform."""
    spreads = {op: spread_of([float(log2(values[op])) for values in group]) for op in group[0]}
    return {op: spreads[op].mean for op in told_apart(spreads)}


def _header(groups: Sequence[Group[Run]], ops: list[list[Ratios]], runs: dict[str, Run]) -> Html:
    ends = [run.schedule.p_tp[-1] for run in runs.values()]
    low, high = percent(min(ends)), percent(max(ends))
    spread = low if low == high else f"{low} to {high}"
    settings = "" if len(groups) == len(runs) else f", {count(len(groups), 'setting')},"
    text = (
        f"{len(runs)} runs{settings} over {len(ops[0][0])} ops in common. "
        f"The share of augmented images ends at {spread}."
    )
    if settings:
        text += " An op is named if the seeds tell it apart from uniform (t test, 5 % by chance)."
    return el(
        "header",
        el("p", "ddas_gpu · comparison", class_="eyebrow"),
        el("h1", _headline(ops), "."),
        el("p", text, class_="summary"),
        [
            el(
                "p",
                f"{name} is not finished: {run.epochs} of {count(run.planned_epochs, 'epoch')}.",
                class_="note",
            )
            for name, run in runs.items()
            if run.unfinished
        ],
    )


def _share(groups: Sequence[Group[Run]]) -> Html:
    lines = []
    for n, group in enumerate(groups):
        runs = list(group.runs.values())
        for run in runs if len(runs) > 1 else []:
            epochs = np.arange(1, run.epochs + 1, dtype=float)
            lines.append(Line("", epochs, run.schedule.p_tp, n, faint=True))
        shortest = min(run.epochs for run in runs)
        mean = np.mean([run.schedule.p_tp[:shortest] for run in runs], axis=0)
        lines.append(Line(group.name, np.arange(1, shortest + 1, dtype=float), mean, n))
    chart = line_chart(
        lines,
        label=f"Share of images to augment by epoch, for {in_words([g.name for g in groups])}",
        x_label="epoch",
        show=lambda p: percent(p, 1),
        mark=short_percent,
        least_span=0.04,
    )
    faint = any(line.faint for line in lines)
    lead = "Means over the seeds; the faint lines are single runs." if faint else None
    return section("Share of images to augment, p_tp", lead, chart)


def _table(groups: Sequence[Group[Run]], ops: list[list[Ratios]]) -> Html:
    columns = [_means(group) for group in ops]
    means = _means([values for group in ops for values in group])
    limit = scale_limit(np.array([list(values.values()) for values in columns]))
    rows = []
    for op in sorted(means, key=means.__getitem__, reverse=True):
        spreads = [spread_of([values[op] for values in group]) for group in ops]
        shown = [(spread.mean, _with_error(spread)) for spread in spreads]
        if len(groups) > 1:
            shown.append((means[op], times(means[op])))
        cells = [
            el("td", text, class_=f"number {shade(value, limit)}", data_value=f"{value:.9g}")
            for value, text in shown
        ]
        rows.append(el("tr", el("th", op, scope="row"), cells))
    lead = "Mean over an op's levels after the last epoch, relative to the uniform 1/K."
    if any(len(group) > 1 for group in ops):
        lead += " Of several seeds the mean ± its standard error."
    names = [group.name for group in groups]
    heads = ("op", *names, "mean") if len(groups) > 1 else ("op", *names)
    return section(
        "Op by op", lead, data_table("Op by op", heads, rows, sortable=True), class_="tinted"
    )


def _with_error(spread: Spread) -> str:
    return times(spread.mean) + (f" ± {spread.error:.2f}" if spread.seeds > 1 else "")


def _candidates(run: Run) -> dict[str, float]:
    relative = ratios(run.schedule.p_o[-1])
    return {str(c): float(v) for c, v in zip(run.schedule.space, relative, strict=True)}


def _agreement(runs: Sequence[Run], names: list[str], ops: list[Ratios]) -> Html:
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


def _settings(groups: Sequence[Group[Run]]) -> Html:
    tables = [settings_of(group.first) for group in groups]
    together = any(len(group.runs) > 1 for group in groups)
    rows = []
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [table.get(key, "–") for table in tables]
        if len(set(values)) > 1 and not (together and key == "seed"):
            cells = [el("td", value) for value in values]
            rows.append(el("tr", el("th", key, scope="row"), cells))
    if not rows:
        return section("Settings that differ", "None: the runs have the same settings.")
    heads = ("setting", *(group.name for group in groups))
    return section("Settings that differ", None, data_table("Settings that differ", heads, rows))
