"""Bounds on the difference between other libraries' ops and Pillow's, which ours equal.

Measured on photographs; the tests check them. An op that is missing here is exported as a call of
our own op, which is exact.
"""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """At most `share` of the pixels differ, by at most `levels` of 255, inside the border.

    The outermost `border` pixels are not compared: Pillow's filters do not change them.
    """

    share: float = 0.0
    levels: int = 0
    border: int = 0


EXACT = Difference()
# Pillow truncates and they round to nearest; some also round the grey that they blend with: ±1 in
# most pixels, ±2 in up to 3 % of them at factors near 0 and above 2.
ROUNDED = Difference(share=0.95, levels=2)
# Pillow rotates in 16.16 fixed point: a few pixels come from the neighbour of theirs.
ROTATED = Difference(share=0.002, levels=255)

COMMON = {
    **dict.fromkeys(("Identity", "FlipLR", "FlipUD", "Invert", "Posterize", "Solarize"), EXACT),
    **dict.fromkeys(("TranslateX", "TranslateY", "Rotate90"), EXACT),
    **dict.fromkeys(("Color", "Contrast"), ROUNDED),
    "Rotate": ROTATED,
}
ALBUMENTATIONS: dict[str, Difference] = {
    **COMMON,
    "Brightness": EXACT,
}
DALI: dict[str, Difference] = {
    **COMMON,
    **dict.fromkeys(("ShearX", "ShearY"), EXACT),
    **dict.fromkeys(("Brightness", "AutoContrast"), ROUNDED),
    "Smooth": Difference(border=1),
    "Sharpness": ROUNDED._replace(border=1),
    "Blur": Difference(share=0.3, levels=1, border=2),
}
