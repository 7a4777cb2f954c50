"""The charts of p_o: a heat map over epochs, and the candidates of each op on a ratio scale."""

from __future__ import annotations

import json
from itertools import groupby

import numpy as np

from ddas_gpu.policy import PolicySchedule
from ddas_gpu.report.charts import round_step, strip, strip_table
from ddas_gpu.report.html import Html, el
from ddas_gpu.report.numbers import (
    SCALES,
    OpGroup,
    groups,
    log2,
    op_ratios,
    ratios,
    scale_limit,
    times,
)

SHADES = 8  # on either side of uniform; the style sheet mixes the colours


def shade(ratio: float, limit: float) -> str:
    """Return the CSS class of a ratio: u0 is uniform, u1..u8 above it, d1..d8 below."""
    position = float(np.clip(log2(ratio) / np.log2(limit), -1, 1))
    step = round(SHADES * position)
    return f"u{step}" if step >= 0 else f"d{-step}"


def heat_map(schedule: PolicySchedule) -> Html:
    """Draw p_o relative to uniform: candidates (by op) as rows, epochs as columns."""
    relative = ratios(schedule.p_o)
    # A quantile, so that one outlier does not make all others pale.
    limit = scale_limit(relative, quantile=0.995)
    body = [_heat_rows(schedule, group, relative, limit) for group in groups(schedule.space)]
    epochs = _epoch_axis(len(relative))
    return el(
        "div", _heat_legend(limit), el("div", body, epochs, class_="heat"), class_="heat-figure"
    )


def _heat_rows(
    schedule: PolicySchedule, group: OpGroup, relative: np.ndarray, limit: float
) -> list[Html]:
    rows = relative[:, list(group.indices)].T
    names = [str(schedule.space[i]) for i in group.indices]
    label = "; ".join(
        f"{name} {times(row[0])} to {times(row[-1])}" for name, row in zip(names, rows, strict=True)
    )
    cells = [_cells(row, y, limit) for y, row in enumerate(rows)]
    svg = el(
        "svg",
        el("title", label),
        cells,
        viewBox=f"0 0 {relative.shape[0]} {len(rows)}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        style=f"--rows:{len(rows)}",
        data_names=json.dumps(names),
        data_ratios=json.dumps([[round(float(v), 3) for v in row] for row in rows]),
    )
    levels = [schedule.space[i].level for i in group.indices]
    return [
        el("b", group.op),
        el("span", [el("i", "" if v is None else f"{v:g}") for v in levels], class_="levels"),
        svg,
        el("span", [el("i", times(row[-1])) for row in rows], class_="ends"),
    ]


def _cells(row: np.ndarray, y: int, limit: float) -> list[Html]:
    """Draw a row; neighbours of the same shade are one rectangle."""
    cells, x = [], 0
    for kind, run in groupby(shade(ratio, limit) for ratio in row):
        width = len(list(run))
        cells.append(el("path", d=f"M{x} {y}h{width}v1h-{width}z", class_=kind))
        x += width
    return cells


def _epoch_axis(epochs: int) -> list[Html]:
    step = round_step(epochs, most=8)
    marks = [1, *(mark for mark in range(step, epochs + 1, step) if mark - 1 > step / 2)]
    ticks = [
        el(
            "span",
            mark,
            class_="tick x" if mark in (1, marks[-1]) else "tick x minor",
            style=f"left:{100 * (mark - 0.5) / epochs:.4g}%",
        )
        for mark in marks
    ]
    return [
        el("b", "epoch", class_="axis"),
        el("span", "level", class_="levels axis"),
        el("div", ticks, class_="epochs"),
        el("span", "last", class_="ends axis"),
    ]


def _heat_legend(limit: float) -> Html:
    steps = [f"d{n}" for n in range(SHADES, 0, -1)] + [f"u{n}" for n in range(SHADES + 1)]
    return el(
        "p",
        el("span", f"÷{limit:g} or less"),
        el("span", [el("i", class_=step) for step in steps], class_="ramp", aria_hidden="true"),
        el("span", f"×{limit:g} or more"),
        el("small", "the middle is the uniform 1/K"),
        class_="heat-legend",
    )


def op_strips(schedule: PolicySchedule) -> Html:
    """Draw the candidates of each op after the last epoch as dots, their mean as a bar."""
    relative = ratios(schedule.p_o[-1])
    means = op_ratios(schedule.space, schedule.p_o[-1])
    limit = scale_limit(relative)
    by_mean = sorted(groups(schedule.space), key=lambda group: means[group.op], reverse=True)
    rows = [_strip(schedule, group, relative, means[group.op], limit) for group in by_mean]
    marks = sorted({1.0, limit, *SCALES[limit]} | {1 / m for m in (limit, *SCALES[limit])})
    ticks = [
        el(
            "span",
            f"×{m:g}" if m >= 1 else f"÷{1 / m:g}",
            class_="tick x" if m in (1 / limit, 1.0, limit) else "tick x minor",
            style=f"left:{_at(m, limit):.4g}%",
        )
        for m in marks
    ]
    return strip_table(rows, ticks, ("op", "← less · more →", "mean"))


def _at(ratio: float, limit: float) -> float:
    """Return the position of a ratio on the scale, in percent."""
    return 50 + 50 * float(np.clip(log2(ratio) / np.log2(limit), -1, 1))


def _strip(
    schedule: PolicySchedule, group: OpGroup, relative: np.ndarray, mean: float, limit: float
) -> Html:
    side = "up" if mean >= 1 else "down"
    label = ", ".join(f"{schedule.space[i]} {times(relative[i])}" for i in group.indices)
    left, right = sorted((50.0, _at(mean, limit)))
    bar = el("path", d=f"M{left:.2f} 1H{right:.2f}V9H{left:.2f}z", class_=f"mean {side}")
    # A stronger level is a larger dot.
    by_level = sorted(group.indices, key=lambda i: schedule.space[i].level or 0)
    dots = [
        el(
            "path",
            d=f"M{_at(relative[i], limit):.2f} 5h0",
            class_="dot",
            style=f"stroke-width:{5 + 6 * rank / (len(by_level) - 1):.3g}px",
        )
        for rank, i in enumerate(by_level)
        if len(by_level) > 1
    ]
    return el(
        "tr",
        el("th", group.op, scope="row"),
        strip(label, el("path", d="M50 0V10", class_="grid"), bar, dots),
        el("td", times(mean), class_=f"number {side}"),
    )
