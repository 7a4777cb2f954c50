"""The ops of detection: ops of the bank that also transform boxes, or change only their inside.

The ops of "Learning Data Augmentation Strategies for Object Detection". Every one is an op of
`table.py` with another reach; there is no second implementation of the pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from ddas_gpu.ops.declare import Numbers, Op, Range
from ddas_gpu.ops.table import OPS


class Reach(Enum):
    """Which pixels an op changes, and whether it transforms the boxes."""

    IMAGE = auto()  # the whole image; the boxes stay
    WITH_BOXES = auto()  # the whole image and the boxes
    EACH_BOX = auto()  # the inside of each box, with probability 1/3
    ONE_BOX = auto()  # the inside of one box, drawn at random


@dataclass(frozen=True)
class BoxOp:
    """An op with a reach."""

    op: Op
    reach: Reach


BOX_OPS: dict[str, BoxOp] = {}


def variant(name: str, of: str, reach: Reach, **changes: Any) -> None:
    """Declare the op `name`: the op `of` with another reach and, if given, another law."""
    if name in BOX_OPS or name in OPS:
        raise ValueError(f"op {name!r} is declared twice")
    BOX_OPS[name] = BoxOp(replace(OPS[of], name=name, **changes), reach)


def find_any(name: str) -> BoxOp:
    """Return the op called `name`, for boxes or not, or raise a ValueError that lists all."""
    if name in OPS:
        return BoxOp(OPS[name], Reach.IMAGE)
    if name not in BOX_OPS:
        raise ValueError(f"unknown op {name!r}; there are: {', '.join([*OPS, *BOX_OPS])}")
    return BOX_OPS[name]


def share_of_box(share: float, height: int, width: int) -> Numbers:
    return Numbers(ints=(int(share * width), int(share * height)))


for name in ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate90"):
    variant(f"{name}_BBox", name, Reach.WITH_BOXES)
for name in ("Rotate", "ShearX", "ShearY", "Solarize", "Equalize"):
    variant(f"{name}_Only_BBoxes", name, Reach.EACH_BOX)
for name in ("TranslateX", "TranslateY"):  # up to 120 pixels, whole images up to 250
    variant(
        f"{name}_Only_BBoxes",
        name,
        Reach.EACH_BOX,
        law=lambda level, scale: int(scale.translate * 120 / 250 * level / 10),
    )
variant("Flip_Only_BBoxes", "FlipLR", Reach.EACH_BOX)
variant(
    "Cutout_Only_BBoxes",
    "Cutout",
    Reach.EACH_BOX,
    law=lambda level, scale: int(scale.cutout / 2 * level / 10),
)
variant(
    "BBox_Cutout",
    "Cutout",
    Reach.ONE_BOX,
    law=lambda level, scale: 0.75 * level / 10,
    accepts=Range(0, 3, "the fraction of the box's sides that is cut out"),
    numbers=share_of_box,
)
