"""Pieces that several pages are made of: sections, tables, settings."""

from __future__ import annotations

from ddas_gpu.report.html import Html, el
from ddas_gpu.report.run import Run


def section(title: str, lead: object, *content: object, class_: str | None = None) -> Html:
    return el(
        "section", el("h2", title), lead and el("p", lead, class_="lead"), *content, class_=class_
    )


def settings_of(run: Run) -> dict[str, str]:
    """Settings and versions of a run as a person writes them."""
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
    """A table that scrolls sideways where it is wider than the page."""
    head = el("tr", [el("th", name, scope="col") for name in heads])
    table = el(
        "table",
        el("thead", head),
        el("tbody", rows),
        class_="data sortable" if sortable else "data",
    )
    return el("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)
