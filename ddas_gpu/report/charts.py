"""Line charts and stacked bars.

The drawing stretches with the page while strokes and text keep their size: an SVG without a fixed
aspect ratio for the lines, ordinary text at percentages around it. Colours are CSS variables, so
that the charts follow the light and the dark theme.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from ddas_gpu.report.html import Html, el

WIDTH, HEIGHT = 1000, 400
MOST_POINTS = 400  # more than a screen can show
MOST_DOTS = 30  # more run into each other on a phone
COLOURS = 8  # in the style sheet


@dataclass(frozen=True)
class Line:
    """One line of a chart; `series` picks its colour. NaN is a gap."""

    name: str  # empty for none in the legend
    x: np.ndarray
    y: np.ndarray
    series: int  # from 0
    faint: bool = False  # a background line: no dots, not in the read-out


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    x_label: str,
    show: Callable[[float], str],
    mark: Callable[[float], str],
    least_span: float = 0.0,
) -> Html:
    """Draw lines over whole numbers from 0 on.

    `show` formats a value, `mark` one on the axis; `least_span` is the least range of the y axis,
    so that noise does not fill the full height.
    """
    x_end = max(float(line.x[-1]) for line in lines)
    y_ticks = _ticks(np.concatenate([line.y for line in lines]), least_span)
    low, high = y_ticks[0], y_ticks[-1]

    def place(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x / x_end * WIDTH, (high - y) / (high - low) * HEIGHT

    grid = [
        el("path", d=f"M0 {(high - y) / (high - low) * HEIGHT:g}H{WIDTH}", class_="grid")
        for y in y_ticks
    ]
    drawn = [_draw(line, *place(*_thinned(line))) for line in lines]
    svg = el(
        "svg",
        el("title", label),
        grid,
        drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    y_labels = [
        el("span", mark(y), class_="tick y", style=f"top:{100 * (high - y) / (high - low):.3g}%")
        for y in y_ticks
    ]
    x_labels = [
        el("span", f"{x:g}", class_="tick x", style=f"left:{100 * x / x_end:.4g}%")
        for x in range(0, math.floor(x_end) + 1, round_step(x_end, most=6))
    ]
    plot = el(
        "div",
        svg,
        y_labels,
        x_labels,
        class_="plot",
        data_end=f"{x_end:g}",
        data_x=x_label,
        data_lines=json.dumps([_readout(line, show) for line in lines if not line.faint]),
    )
    return el("div", _legend(lines, show), plot, el("p", x_label, class_="axis"), class_="chart")


def colour(series: int) -> str:
    """Return the CSS class of a series, counted from 0."""
    return f"s{1 + series % COLOURS}"


def _draw(line: Line, x: np.ndarray, y: np.ndarray) -> list[Html]:
    pieces, pen = [], "M"
    for px, py in zip(x, y, strict=True):
        if math.isfinite(py):
            pieces.append(f"{pen}{px:.1f} {py:.1f}")
            pen = "L"
        else:
            pen = "M"
    kind = "faint" if line.faint else "line"
    stroke = el("path", d="".join(pieces), class_=f"{kind} {colour(line.series)}")
    if line.faint or len(x) > MOST_DOTS:
        return [stroke]
    # A dot is a stroke of no length with round ends: it stays round when the drawing is stretched.
    dots = "".join(
        f"M{px:.1f} {py:.1f}h0" for px, py in zip(x, y, strict=True) if math.isfinite(py)
    )
    return [stroke, el("path", d=dots, class_=f"dots {colour(line.series)}")]


def _legend(lines: Sequence[Line], show: Callable[[float], str]) -> Html:
    entries = []
    for line in lines:
        if not line.name:
            continue
        known = line.y[np.isfinite(line.y)]
        last = None if line.faint or not len(known) else el("b", show(float(known[-1])))
        kind = "key faint" if line.faint else "key"
        swatch = el("i", class_=f"{kind} {colour(line.series)}", aria_hidden="true")
        entries.append(el("li", swatch, line.name, " ", last))
    return el("ul", entries, class_="legend")


def _readout(line: Line, show: Callable[[float], str]) -> dict[str, object]:
    points = [(f"{x:g}", show(y)) for x, y in zip(line.x, line.y, strict=True) if math.isfinite(y)]
    return {
        "name": line.name,
        "x": [float(x) for x, _ in points],
        "y": [y for _, y in points],
    }


def _thinned(line: Line) -> tuple[np.ndarray, np.ndarray]:
    """Average neighbouring points if there are more than a screen can show."""
    if len(line.x) <= MOST_POINTS:
        return line.x, line.y
    pieces = np.array_split(np.arange(len(line.x)), MOST_POINTS)
    x, y = (np.array([values[p].mean() for p in pieces]) for values in (line.x, line.y))
    return x, y


def _ticks(values: np.ndarray, least_span: float) -> list[float]:
    """Return 3 to 6 round numbers that enclose the values."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    least = max(least_span, abs(high) / 100, 1e-6)  # a constant needs an axis too
    missing = max(0.0, least - (high - low))
    below = min(missing / 2, low) if low >= 0 else missing / 2  # no tick below 0
    low, high = low - below, high + missing - below
    power = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if (high - low) / (power * m) <= 4)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(n * step, 12) for n in range(first, max(last, first + 1) + 1)]


def round_step(end: float, most: int) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50 … that fits at most `most` times into `end`."""
    return next(m * 10**k for k in count() for m in (1, 2, 5) if end / (m * 10**k) <= most)


def strip(label: str, *marks: object) -> Html:
    """Draw marks on a line 100 wide and 10 high, as a cell of a table of strips."""
    svg = el(
        "svg",
        el("title", label),
        marks,
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    return el("td", svg)


def strip_table(
    rows: Sequence[Html], ticks: Sequence[Html], heads: Sequence[str], kind: str = "strips"
) -> Html:
    """Return rows of (name, strip, …) with the common scale below the strips.

    heads: of the columns; empty ones have no line of their own.
    """
    blank = [el("td") for _ in heads[2:]]
    axis = el("tr", el("td"), el("td", el("div", ticks, class_="epochs")), blank)
    named = el("thead", el("tr", [el("th", name, scope="col") for name in heads]))
    body, foot = el("tbody", rows), el("tfoot", axis)
    return el("table", any(heads) and named, body, foot, class_=kind)


@dataclass(frozen=True)
class Interval:
    """A mean ± `half`, and the values that it is of."""

    name: str
    mean: float
    half: float
    shown: str  # mean and half in words
    series: int  # from 0
    values: tuple[float, ...] = ()


def interval_chart(
    intervals: Sequence[Interval], *, mark: Callable[[float], str], zero: bool = False
) -> Html:
    """Draw intervals below each other on one scale; `mark` formats a number of the axis.

    zero: include 0 in the scale and draw a line there.
    """
    ends = [v for i in intervals for v in (i.mean - i.half, i.mean + i.half, *i.values)]
    ticks = _ticks(np.array([*ends, 0.0] if zero else ends), least_span=0.002)
    low, high = ticks[0], ticks[-1]

    def at(value: float) -> float:
        return 100 * (value - low) / (high - low)

    rows = []
    for one in intervals:
        left, right = at(one.mean - one.half), at(one.mean + one.half)
        bar = el("path", d=f"M{left:.2f} 3H{right:.2f}V7H{left:.2f}z", class_="mean")
        dots = "".join(f"M{at(value):.2f} 5h0" for value in one.values)
        drawn = strip(
            f"{one.name}: {one.shown}",
            zero and el("path", d=f"M{at(0):.2f} 0V10", class_="grid"),
            bar,
            el("path", d=dots, class_="dot", style="stroke-width:6px"),
            el("path", d=f"M{at(one.mean):.2f} 1V9", class_="middle"),
        )
        cells = drawn, el("td", one.shown, class_="number")
        rows.append(el("tr", el("th", one.name, scope="row"), cells, class_=colour(one.series)))
    marks = [
        el(
            "span",
            mark(tick).replace("-", "\N{MINUS SIGN}"),
            class_="tick x" if tick in (low, high) else "tick x minor",
            style=f"left:{at(tick):.4g}%",
        )
        for tick in ticks
    ]
    return strip_table(rows, marks, ("", "", ""), "strips intervals")


@dataclass(frozen=True)
class Effect:
    """A row of an effect chart: a value, its bounds and what they tell."""

    name: str
    value: float
    low: float
    high: float
    verdict: str
    remark: str


def effect_chart(rows: Sequence[Effect], heads: tuple[str, str, str, str]) -> Html:
    """Draw each value as a dot on the line from its lower to its upper bound, around 0.

    heads: of the names, the drawing, the verdicts and the remarks.
    """
    reach = max((max(-row.low, row.high) for row in rows), default=1.0) or 1.0
    body = [_effect_row(row, reach) for row in rows]
    ticks = [
        el("span", mark, class_="tick x", style=f"left:{at}%")
        for at, mark in ((0, f"{-reach:.1f}".replace("-", "−")), (50, "0"), (100, f"{reach:.1f}"))
    ]
    return strip_table(body, ticks, heads, "strips effects")


def _effect_row(row: Effect, reach: float) -> Html:
    low, value, high = (50 + 50 * x / reach for x in (row.low, row.value, row.high))
    side = {"helps": "up", "hurts": "down"}.get(row.verdict.split()[0], "soft")
    label = f"{row.name}: {row.value:+.2f}, from {row.low:+.2f} to {row.high:+.2f}; {row.verdict}"
    drawn = strip(
        label,
        el("path", d="M50 0V10", class_="grid"),
        el("path", d=f"M{low:.2f} 5H{high:.2f}", class_=f"range {side}"),
        el("path", d=f"M{value:.2f} 5h0", class_="dot", style="stroke-width:8px"),
    )
    return el(
        "tr",
        el("th", row.name, scope="row"),
        drawn,
        el("td", row.verdict, class_=f"verdict {side}"),
        el("td", row.remark, class_="number"),
    )


def stacked_bar(shares: Sequence[tuple[str, float]], *, label: str) -> Html:
    """Draw parts of a whole as one bar; the table beside it names them in the same colours."""
    parts = [
        el(
            "span",
            class_=colour(series),
            style=f"flex-grow:{share:.5f}",
            title=f"{name}: {100 * share:.1f} %",
        )
        for series, (name, share) in enumerate(shares)
    ]
    return el("div", parts, class_="bar", role="img", aria_label=label)
