"""Parts that several pages share: sections, tables, tiles, settings, time by stage."""

from __future__ import annotations

from collections.abc import Sequence

from ddas_gpu.report.charts import colour, stacked_bar
from ddas_gpu.report.html import Html, el
from ddas_gpu.report.numbers import duration, percent
from ddas_gpu.report.reading import RecordedRun

Tile = tuple[str, str, str]  # label, number, remark


def section(title: str, lead: object, *content: object, class_: str | None = None) -> Html:
    return el(
        "section", el("h2", title), lead and el("p", lead, class_="lead"), *content, class_=class_
    )


def tiles(entries: Sequence[Tile]) -> Html:
    """Return the row of numbers at the head of a page."""
    boxes = [
        el("div", el("dt", label), el("dd", value), el("dd", remark, class_="small"))
        for label, value, remark in entries
    ]
    return el("dl", boxes, class_="tiles")


def settings_list(run: RecordedRun) -> Html | None:
    entries = [el("div", el("dt", k), el("dd", v)) for k, v in settings_of(run).items()]
    return section("Settings", None, el("dl", entries, class_="settings")) if entries else None


def time_by_stage(lead: str | None, stages: dict[str, float], steps: int | None = None) -> Html:
    """Return a bar and a table of the seconds of each stage, with the mean per step if wanted."""
    total = sum(stages.values())
    rows = []
    for n, (name, seconds) in enumerate(stages.items()):
        swatch = el("i", class_=f"key {colour(n)}", aria_hidden="true")
        per_step = steps and el("td", f"{1000 * seconds / steps:,.2f} ms", class_="number")
        rows.append(
            el(
                "tr",
                el("th", swatch, name, scope="row"),
                el("td", percent(seconds / total, 1), class_="number"),
                per_step,
                el("td", duration(seconds), class_="number"),
            )
        )
    heads = ("stage", "share", steps and "per step", "total")
    head = el("tr", [el("th", name, scope="col") for name in heads if name])
    shares = [(name, seconds / total) for name, seconds in stages.items()]
    label = ", ".join(f"{name} {percent(share, 1)}" for name, share in shares)
    return section(
        "Where the time went",
        lead,
        stacked_bar(shares, label=f"Time by stage: {label}"),
        el("table", el("thead", head), el("tbody", rows), class_="stages"),
    )


def settings_of(run: RecordedRun) -> dict[str, str]:
    """Return the settings and versions of a run as text."""
    settings = {key.replace("_", " "): _setting(value) for key, value in run.settings.items()}
    return settings | {f"version of {k}": _setting(v) for k, v in run.versions.items()}


def _setting(value: object) -> str:
    if value is None or value == []:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_setting, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def data_table(
    label: str, heads: tuple[str, ...], rows: list[Html], sortable: bool = False
) -> Html:
    """Return a table that scrolls sideways if it is wider than the page."""
    head = el("tr", [el("th", name, scope="col") for name in heads])
    table = el(
        "table",
        el("thead", head),
        el("tbody", rows),
        class_="data sortable" if sortable else "data",
    )
    return el("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)
