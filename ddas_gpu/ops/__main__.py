"""Print the tables of docs/ops.md, made from the declarations of the ops.

python -m ddas_gpu.ops               print the tables
python -m ddas_gpu.ops docs/ops.md   write them into the page
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ddas_gpu.ops.kornia import gradient_table
from ddas_gpu.ops.table import OPS, Op, PixelScale, find_any
from ddas_gpu.space import PRESETS, SearchSpace

LEVELS = "## Every level of every preset"


def table(lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the first line is its head."""
    head, *rows = lines
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def row(op: Op) -> tuple[str, ...]:
    """Return name, accepted arguments, argument at level 10, and what is drawn per image."""
    drawn = "sign" if op.signed else "centre" if op.centred else ""
    if op.accepts is None or op.law is None:
        return op.name, "", "", drawn
    accepted = f"{op.accepts.low:g} … {op.accepts.high:g}, {op.accepts.unit}"
    return op.name, accepted, f"{op.law(10, PixelScale()):g}", drawn


def op_table() -> str:
    """Return a Markdown table of the op bank."""
    return table(
        [("op", "argument", "at level 10 (32 px data)", "drawn per image"), *map(row, OPS.values())]
    )


def level_section() -> str:
    """Return a section with the argument of every level, a table per preset."""
    alike: dict[SearchSpace, list[str]] = {}
    for name in PRESETS:
        alike.setdefault(SearchSpace.preset(name), []).append(name)
    parts = [
        LEVELS,
        "± means that the sign is drawn for each image. Ops without a magnitude are not listed.",
    ]
    for space, names in alike.items():
        scale = f"{space.scale.translate} px translation and {space.scale.cutout} px Cutout"
        parts.append(
            f"**{', '.join(names)}**: {len(space)} candidates, {space.depth} per policy; "
            f"{scale} at level 10; fill {space.fill}."
        )
        parts.append(level_table(space))
    return "\n\n".join(parts)


def level_table(space: SearchSpace) -> str:
    """Return the argument of each op of a space at each of its levels."""
    rows: dict[str, dict[float, str]] = {}
    for index, candidate in enumerate(space):
        argument = space.argument(index)
        if candidate.level is not None and argument is not None:
            sign = "±" if find_any(candidate.op).signed and argument else ""
            rows.setdefault(candidate.op, {})[candidate.level] = f"{sign}{argument:g}"
    levels = sorted({level for found in rows.values() for level in found})
    head = ["op", *(f"level {level:g}" for level in levels)]
    return table([head, *([op, *(found.get(v, "") for v in levels)] for op, found in rows.items())])


def with_tables(page: str) -> str:
    """Return the page with its tables replaced: they are found by their first lines."""
    for made, end in (
        (op_table(), "\n\n"),
        (level_section(), "\n\n## "),
        (gradient_table(), "\n\n"),
    ):
        begin = page.index(made.splitlines()[0])
        page = page[:begin] + made + page[page.index(end, begin + 1) :]
    return page


if __name__ == "__main__":
    if sys.argv[1:]:
        target = Path(sys.argv[1])
        target.write_text(with_tables(target.read_text("utf-8")), "utf-8")
    else:
        print(op_table(), level_section(), gradient_table(), sep="\n\n")
