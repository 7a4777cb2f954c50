"""Which ops go with which data."""

from __future__ import annotations

import pytest

from ddas_gpu.box_spaces import check_space
from ddas_gpu.space import PRESETS, SearchSpace


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_for_one_kind_of_data_or_both(name):
    space = SearchSpace.preset(name)
    with_boxes = name.startswith("coco")
    check_space(space, with_boxes, name)
    with pytest.raises(ValueError, match=f"^{name}: "):
        check_space(space, not with_boxes, name)


def test_ops_that_move_nothing_are_for_all():
    space = SearchSpace.of(["Identity", "Equalize", "Solarize", "Cutout"], [4])
    for has_boxes in (True, False):
        check_space(space, has_boxes, "mine")
