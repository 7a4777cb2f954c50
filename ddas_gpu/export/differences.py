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

    def in_words(self) -> str:
        """Return the bound as a sentence for the head of a file."""
        if not self.levels:
            return f"only in a border of {self.border} px, which Pillow leaves unchanged."
        border = f"; and in a border of {self.border} px, which Pillow leaves unchanged"
        inside = f"in {100 * self.share:g} % of the pixels, "
        inside += f"by at most {self.levels} of 255" if self.levels < 255 else "taken from beside"
        return f"{inside}{border if self.border else ''}."


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

# The exported files, which call none of our ops. What is missing here is exact. The numbers are
# those of photographs at 8 levels; the tests keep them tight.
NEIGHBOURS = Difference(share=0.0025, levels=255)  # as ROTATED, for shears
ALBUMENTATIONS_FILE: dict[str, Difference] = {
    "Rotate": Difference(share=0.0003, levels=255),
    "ShearX": NEIGHBOURS,
    "ShearY": NEIGHBOURS,
}
DALI_FILE: dict[str, Difference] = {
    "AutoContrast": Difference(share=0.7, levels=1),
    "Equalize": Difference(share=0.85, levels=191),  # OpenCV's definition
    "Blur": Difference(share=0.08, levels=1, border=2),
    "Smooth": Difference(border=1),
    "Rotate": Difference(share=0.0003, levels=255),
    "ShearX": NEIGHBOURS,
    "ShearY": NEIGHBOURS,
    "Color": Difference(share=0.65, levels=2),
    "Contrast": Difference(share=0.65, levels=2),
    "Brightness": Difference(share=0.6, levels=1),
    "Sharpness": Difference(share=0.45, levels=2, border=1),
}
