"""The table: magnitude laws, accepted arguments, and declarations that cannot collide."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddas_gpu.ops.__main__ import with_tables
from ddas_gpu.ops.declare import point_op
from ddas_gpu.ops.table import OPS, PixelScale, find

# DESIGN's table, as (op, level) → argument.
LAWS = [
    ("Rotate", 10, 30),
    ("Rotate", 1, 3),
    ("Rotate", 14, 42),
    ("ShearX", 10, 0.3),
    ("ShearY", 2, 0.06),
    ("TranslateX", 14, 14),
    ("TranslateY", 2, 2),
    ("Posterize", 0, 4),
    ("Posterize", 2, 4),
    ("Posterize", 6, 2),
    ("Posterize", 10, 1),
    ("Posterize", 14, 1),
    ("Solarize", 0, 256),
    ("Solarize", 10, 0),
    ("Solarize", 14, 0),
    ("Solarize", 6, 103),
    ("Color", 10, 1.9),
    ("Contrast", 5, 1.0),
    ("Brightness", 0, 0.1),
    ("Sharpness", 14, 2.62),
    ("Cutout", 10, 20),
    ("Shrink", 10, 2.0),
    ("Shrink", 6, 102 / 64),
    ("Enlarge", 10, 0.5),
    ("Lighten", 10, 0.4),
    ("Lighten", 30, 0.0),
    ("Warmth", 14, 0.7),
    ("Warmth", 30, 1.0),
]


@pytest.mark.parametrize(("name", "level", "argument"), LAWS)
def test_magnitude_law(name, level, argument):
    assert OPS[name].law(level, PixelScale()) == pytest.approx(argument, abs=1e-12)


def test_pixel_ops_follow_the_scale_of_the_data():
    imagenet = PixelScale(translate=100, cutout=40)
    assert OPS["TranslateX"].law(7, imagenet) == 70
    assert OPS["Cutout"].law(14, imagenet) == 56


@pytest.mark.parametrize("name", OPS)
def test_every_level_gives_an_accepted_argument(name):
    declared = find(name)
    assert (declared.law is None) == (declared.accepts is None)
    if declared.law is not None:
        for level in range(31):
            value = declared.law(level, PixelScale(250, 100))
            assert declared.check(value) == value
            if declared.signed:
                assert declared.check(-value) == -value


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("wrong", [math.nan, math.inf, "3", 1e9, True, [1]])
def test_wrong_arguments_are_named(name, wrong):
    with pytest.raises(ValueError, match=name):
        find(name).check(wrong)


@given(st.floats(1, 8).filter(lambda bits: bits != int(bits)))
def test_bits_are_whole(bits):
    with pytest.raises(ValueError, match="whole number from 1 to 8"):
        find("Posterize").check(bits)


def test_unknown_op_lists_the_bank():
    with pytest.raises(ValueError, match=r"unknown op 'Sharpen'.*Sharpness"):
        find("Sharpen")


def test_an_op_is_declared_once():
    def Invert(image):
        return image

    with pytest.raises(ValueError, match="declared twice"):
        point_op(pixel="solarize")(Invert)


def test_the_page_about_the_ops_is_up_to_date():
    page = (Path(__file__).resolve().parents[2] / "docs" / "ops.md").read_text("utf-8")
    assert with_tables(page) == page, "run: python -m ddas_gpu.ops docs/ops.md"
