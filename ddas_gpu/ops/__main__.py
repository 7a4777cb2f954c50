"""`python -m ddas_gpu.ops` prints the op bank as a Markdown table, from its declarations."""

from ddas_gpu.ops.table import OPS, Op, PixelScale


def row(op: Op) -> tuple[str, ...]:
    """Name, argument, argument at level 10, and what is drawn for each image."""
    drawn = "sign" if op.signed else "centre" if op.centred else ""
    if op.accepts is None or op.law is None:
        return op.name, "", "", drawn
    accepted = f"{op.accepts.low:g} … {op.accepts.high:g}, {op.accepts.unit}"
    return op.name, accepted, f"{op.law(10, PixelScale()):g}", drawn


def bank() -> str:
    """The whole table."""
    head = ("op", "argument", "at level 10 (32 px data)", "drawn for each image")
    lines = [head, tuple("---" for _ in head), *map(row, OPS.values())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(bank())
