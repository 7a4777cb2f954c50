"""HTML by construction: every tag is closed, and all text is escaped unless it is `Html`."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib import resources

VOID = {"img", "meta"}  # the void elements these pages use

# The page is self-contained: the browser refuses to fetch anything.
CONTENT_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
)


class Html(str):
    """Text that is markup and must not be escaped."""


def el(tag: str, *children: object, **attributes: object) -> Html:
    """Return an element. Children: text, numbers, `Html`, lists of them; not None or False.

    Attributes: a trailing underscore is dropped (`class_`), others become hyphens (`aria_label`).

    >>> el("p", "a < b", el("b", 3), class_="note")
    '<p class="note">a &lt; b<b>3</b></p>'
    """
    opening = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        opening.append(name if value is True else f'{name}="{escape(str(value))}"')
    start = f"<{' '.join(opening)}>"
    return Html(start if tag in VOID else f"{start}{join(children)}</{tag}>")


def join(children: Iterable[object]) -> Html:
    """Concatenate children, each escaped unless it is `Html`."""
    return Html("".join(_markup(child) for child in children))


def _markup(child: object) -> str:
    if child is None or child is False:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, (list, tuple)):
        return join(child)
    return escape(str(child), quote=False)


def document(title: str, *body: object) -> str:
    """Return a whole page that contains its style and script."""
    files = resources.files("ddas_gpu.report")
    style = Html(files.joinpath("style.css").read_text("utf-8"))
    script = Html(files.joinpath("page.js").read_text("utf-8"))
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", http_equiv="Content-Security-Policy", content=CONTENT_POLICY),
        el("title", title),
        el("style", style),
    )
    content = el("body", el("main", *body), el("script", script))
    return f"<!DOCTYPE html>\n{el('html', head, content, lang='en')}\n"
