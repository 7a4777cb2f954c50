"""Complete the Markdown of the package's docstrings for the API page, as a griffe extension.

A paragraph of "name: what it is" becomes a list, an example with >>> a block of code.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"(?P<names>`?[a-z_]\w*`?(?:, (?:`?\w+`?))*)(?:: +| {2,})(?P<text>\S.*)")


class DocstringMarkdown(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object | griffe.Alias, **_: Any) -> None:
        if not obj.is_alias and obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(docstring: str) -> str:
    """Return a docstring with fenced examples and lists of arguments."""
    paragraphs = re.split(r"\n{2,}", docstring.strip())
    return "\n\n".join(map(_paragraph, paragraphs))


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if lines[0].startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    if not ENTRY.fullmatch(lines[0]):
        return text
    items: list[str] = []
    after: list[str] = []  # sentences below the list
    for line in lines:
        entry = ENTRY.fullmatch(line)
        if entry and not after:
            items.append(f"- **{entry['names']}**: {entry['text']}")
        elif not after and (line.startswith(" ") or not items[-1].endswith(".")):
            items.append(f"    {line.strip()}")
        else:
            after.append(line)
    return "\n".join([*items, *([""] if after else []), *after])
