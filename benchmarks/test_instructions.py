"""The instructions of every op of the CPU target, relative to a copy."""

from __future__ import annotations

from instructions import looks_first

NOTE = (
    "Counted by valgrind on one image of noise. Copies: over those of Identity, a plain copy. "
    "Bytes: what must move for a pixel, in and out; an op that looks at the whole image first "
    "reads it twice. Arithmetic: instructions of the same source without vectors, about what the "
    "threads of a GPU execute, for each of these bytes (flips, quarter turns and the moves of "
    "whole rows are vectors even then). Compiled for AVX2, whatever the processor."
)


def test_instructions(counter, scalar_instructions, tables):
    columns = ("op", "32 px", "224 px", "copies", "bytes", "scalar, 224 px", "arithmetic a byte")
    table = tables.get_or_make("Instructions a pixel", columns, NOTE)
    copy = counter.a_pixel("Identity", 224)
    for name, scalar in scalar_instructions.items():
        small, large = (counter.a_pixel(name, side) for side in (32, 224))
        moved = 9 if looks_first(name) else 6
        table.add(
            name,
            f"{small:.2f}",
            f"{large:.2f}",
            f"{large / copy:.1f}",
            moved,
            f"{scalar:.1f}",
            f"{scalar / moved:.1f}",
        )
