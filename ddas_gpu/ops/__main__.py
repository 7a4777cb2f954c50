"""Print the tables of docs/ops.md, made from the declarations of the ops.

python -m ddas_gpu.ops               print the tables
python -m ddas_gpu.ops docs/ops.md   write them into the page
"""

from __future__ import annotations

import sys
from pathlib import Path

from ddas_gpu.ops.kornia import gradient_table
from ddas_gpu.ops.table import OPS, Op, PixelScale


def row(op: Op) -> tuple[str, ...]:
    """Return name, accepted arguments, argument at level 10, and what is drawn per image."""
    drawn = "sign" if op.signed else "centre" if op.centred else ""
    if op.accepts is None or op.law is None:
        return op.name, "", "", drawn
    accepted = f"{op.accepts.low:g} … {op.accepts.high:g}, {op.accepts.unit}"
    return op.name, accepted, f"{op.law(10, PixelScale()):g}", drawn


def op_table() -> str:
    """Return a Markdown table of the op bank."""
    head = ("op", "argument", "at level 10 (32 px data)", "drawn per image")
    lines = [head, tuple("---" for _ in head), *map(row, OPS.values())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def with_tables(page: str) -> str:
    """Return the page with both tables replaced; a table is found by its first line."""
    for table in (op_table(), gradient_table()):
        begin = page.index(table.splitlines()[0])
        page = page[:begin] + table + page[page.index("\n\n", begin) :]
    return page


if __name__ == "__main__":
    if sys.argv[1:]:
        target = Path(sys.argv[1])
        target.write_text(with_tables(target.read_text("utf-8")), "utf-8")
    else:
        print(op_table(), gradient_table(), sep="\n\n")
