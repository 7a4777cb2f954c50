"""Search spaces: the presets of the paper, custom spaces, JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddas_gpu import Candidate, SearchSpace
from ddas_gpu.ops import OPS, PixelScale
from ddas_gpu.ops.table import BOX_OPS
from ddas_gpu.space import PRESETS, check_space

RELEASED_ORDER = (
    "Identity FlipLR FlipUD AutoContrast Equalize Invert Blur Smooth "
    "Rotate Posterize ShearX ShearY TranslateX TranslateY Solarize "
    "Color Contrast Brightness Sharpness"
).split()


def test_cifar_is_the_space_of_the_released_policies():
    space = SearchSpace.preset("cifar")
    assert (len(space), space.depth) == (52, 2)
    assert space[7] == Candidate(op="Smooth", level=None)
    assert list(dict.fromkeys(candidate.op for candidate in space)) == RELEASED_ORDER
    assert [candidate.level for candidate in space[8:12]] == [2, 6, 10, 14]
    assert all(candidate.op == "Rotate" for candidate in space[8:12])


@pytest.mark.parametrize(
    ("name", "size", "depth"),
    [
        ("svhn", 52, 2),
        ("camera", 68, 2),
        ("imagenet", 32, 2),
        ("coco", 68, 2),
        ("sanity", 19, 1),
        ("digits", None, 2),
        ("scenes", 50, 2),
    ],
)
def test_presets(name, size, depth):
    space = SearchSpace.preset(name)
    assert size in (None, len(space))
    assert space.depth == depth


def test_imagenet_searches_cutout_and_larger_moves():
    space = SearchSpace.preset("imagenet")
    arguments = {str(candidate): space.argument(i) for i, candidate in enumerate(space)}
    assert arguments["Cutout 14"] == 56
    assert arguments["TranslateX 7"] == 70
    assert arguments["Invert"] is None


def test_the_sanity_check_turns_by_a_quarter_instead_of_rotating():
    ops = {candidate.op for candidate in SearchSpace.preset("sanity")}
    assert "Rotate90" in ops
    assert "Rotate" not in ops


candidates = st.sampled_from(sorted(OPS)).flatmap(
    lambda op: st.builds(
        Candidate,
        st.just(op),
        st.none() if OPS[op].law is None else st.integers(0, 30) | st.floats(0, 30),
    )
)


@given(
    st.lists(candidates, min_size=1, max_size=70, unique=True),
    st.integers(1, 5),
    st.builds(PixelScale, st.integers(1, 300), st.integers(1, 300)),
    st.integers(0, 255),
)
def test_json_round_trip(chosen, depth, scale, fill):
    space = SearchSpace(tuple(chosen), depth, scale, fill)
    assert SearchSpace.from_json(json.loads(json.dumps(space.to_json()))) == space


def test_custom_spaces_from_ops_and_from_a_file(tmp_path):
    space = SearchSpace.of(["Invert", "Rotate"], levels=[3, 9], depth=1)
    assert [str(candidate) for candidate in space] == ["Invert", "Rotate 3", "Rotate 9"]
    file = tmp_path / "space.json"
    file.write_text(json.dumps({"ops": ["Invert", "Rotate"], "levels": [3, 9], "depth": 1}))
    assert SearchSpace.load(file) == space


def test_a_space_is_a_sequence():
    space = SearchSpace.preset("sanity")
    assert space.index(Candidate("Rotate90")) == 8
    assert Candidate("Rotate90") in space
    assert np.array([space.argument(i) is None for i in range(len(space))]).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SearchSpace.preset("cifar11"), r"unknown preset 'cifar11'.*cifar.*digits"),
        (lambda: Candidate("Rotat", 3), "unknown op 'Rotat'"),
        (lambda: Candidate("Rotate"), "Rotate needs a level from 0 to 30"),
        (lambda: Candidate("Rotate", 31), "not 31"),
        (lambda: Candidate("Rotate", float("nan")), "not nan"),
        (lambda: Candidate("Invert", 3), "Invert has no magnitude"),
        (lambda: SearchSpace(()), "at least one candidate"),
        (lambda: SearchSpace.of(["Rotate"]), "at least one level"),
        (lambda: SearchSpace.of(["Invert", "Invert"]), "given twice: Invert"),
        (lambda: SearchSpace.of(["Invert"], depth=0), "1 to 100, not 0"),
        (lambda: SearchSpace.of(["Invert"], fill=256), "0 to 255, not 256"),
        (lambda: SearchSpace.from_json({"candidates": 3}), "search space is written"),
        (lambda: SearchSpace.from_json([1]), "search space is written"),
        (lambda: SearchSpace.from_json({"ops": ["Invert"], "scale": {"tr": 1}}), "tr"),
        (
            lambda: SearchSpace.from_json({"candidates": [["Rotate", "x"]]}),
            r"candidates\[0\] must be .*not \['Rotate', 'x'\]",
        ),
    ],
)
def test_what_is_wrong_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_file_that_is_not_json(tmp_path):
    file = tmp_path / "space.json"
    file.write_text("{ops:")
    with pytest.raises(ValueError, match=r"space\.json is not JSON"):
        SearchSpace.load(file)


def test_every_preset_uses_declared_ops_only():
    declared = {*OPS, *BOX_OPS}
    assert {c.op for name in PRESETS for c in SearchSpace.preset(name)} <= declared


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_for_one_kind_of_data_or_both(name):
    space = SearchSpace.preset(name)
    with_boxes = name in ("coco", "coco-sanity", "scenes")
    check_space(space, with_boxes, name)
    with pytest.raises(ValueError, match=f"^{name}: "):
        check_space(space, not with_boxes, name)


def test_ops_that_move_nothing_are_for_all():
    space = SearchSpace.of(["Identity", "Equalize", "Solarize", "Cutout"], [4])
    for has_boxes in (True, False):
        check_space(space, has_boxes, "mine")


def test_a_space_is_kept_in_its_file(tmp_path):
    space = SearchSpace.of(["Rotate", "Invert"], levels=[3, 9], depth=3)
    space.save(tmp_path / "space.json")
    assert SearchSpace.load(tmp_path / "space.json") == space
