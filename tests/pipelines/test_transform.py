"""The settings of a detector's images."""

from __future__ import annotations

import numpy as np
import pytest

from ddas_gpu.pipelines.transform import KeepRatio, Square, make_box_transform, open_resize


@pytest.mark.parametrize(
    ("resize", "expected"),
    [
        (512, Square(512)),
        (np.int64(64), Square(64)),
        ((800, 1333), KeepRatio(800, 1333)),
        ([400, 667], KeepRatio(400, 667)),
        (Square(7), Square(7)),
    ],
)
def test_a_number_is_a_square_and_a_pair_keeps_the_ratio(resize, expected):
    assert open_resize(resize) == expected


@pytest.mark.parametrize("resize", [0, -3, 1.5, "large", None, (1, 2, 3), (), (8, 0), (8, 9.0)])
def test_a_size_that_is_none_is_named(resize):
    with pytest.raises(ValueError, match="resize is the side of a square in pixels, or ") as raised:
        open_resize(resize)
    assert repr(resize) in str(raised.value)


def test_cocos_usual_size_is_the_default():
    assert make_box_transform().resize == KeepRatio(800, 1333)
