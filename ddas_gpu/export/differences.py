"""How far the ops of other libraries are from Pillow's, which ours are equal to.

Measured on photographs; the tests hold each library to these bounds. Ops that are not here are
not exported to the library's own op but to a call of ours, and so are exact.
"""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """At most `share` of the pixels differ, by at most `levels` of 255, inside the border.

    In a border of so many pixels the values may be any: Pillow's filters leave it alone.
    """

    share: float = 0.0
    levels: int = 0
    border: int = 0


EXACT = Difference()
# Pillow cuts off, they round to nearest, and some first round the grey that they mix with: ±1 in
# most pixels, ±2 in up to 3 % of them at factors near 0 and above 2.
ROUNDED = Difference(share=0.95, levels=2)
# Pillow turns in 16.16 fixed point: here and there it takes the pixel next to theirs.
TURNED = Difference(share=0.002, levels=255)

COMMON = {
    **dict.fromkeys(("Identity", "FlipLR", "FlipUD", "Invert", "Posterize", "Solarize"), EXACT),
    **dict.fromkeys(("TranslateX", "TranslateY", "Rotate90"), EXACT),
    **dict.fromkeys(("Color", "Contrast"), ROUNDED),
    "Rotate": TURNED,
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
