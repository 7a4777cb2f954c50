"""Which ops go with which data: boxes must move with their pixels, and there must be boxes."""

from __future__ import annotations

from collections.abc import Iterable

from ddas_gpu.ops.box_table import Reach, find_any
from ddas_gpu.ops.table import Primitive
from ddas_gpu.space import Candidate


def check_space(space: Iterable[Candidate], has_boxes: bool, where: str) -> None:
    """A ValueError if one of these candidates and data with or without boxes do not go together.

    where: what the candidates come from, for the message.
    """
    for op in dict.fromkeys(candidate.op for candidate in space):
        found = find_any(op)
        if found.reach is not Reach.IMAGE and not has_boxes:
            raise ValueError(f"{where}: {op} needs boxes, which --data coco has")
        moves = found.op.primitive is Primitive.GATHER
        if has_boxes and moves and found.reach is Reach.IMAGE:
            raise ValueError(
                f"{where}: {op} moves pixels away from their boxes; detection has ops "
                "that take them along, such as Rotate_BBox"
            )
