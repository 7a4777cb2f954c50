"""The exported transform does what ours does: op by op within the bounds, and in its draws."""

from __future__ import annotations

import json

import numpy as np
import pytest
from export_bounds import within

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.export.albumentations_policy import transform_of
from ddas_gpu.export.differences import ALBUMENTATIONS, EXACT
from ddas_gpu.export.filled import apply_filled
from ddas_gpu.exports import albumentations_policy, load_albumentations, save_albumentations
from ddas_gpu.ops import apply_op
from ddas_gpu.ops.table import OPS, PixelScale

A = pytest.importorskip("albumentations")

LEVELS = (0, 2, 6, 10, 14)
CASES = [
    (op.name, None if op.law is None else level)
    for op in OPS.values()
    for level in (LEVELS if op.law else LEVELS[:1])
    if not op.centred
]


@pytest.mark.parametrize(("op", "level"), CASES, ids=str)
def test_op_by_op(photographs, op, level):
    declared = OPS[op]
    argument = None if level is None else declared.law(level, PixelScale())
    for sign in (1, -1) if declared.signed else (1,):
        signed = argument if argument is None else sign * argument
        transform = A.Compose([transform_of(op, signed)])
        theirs = np.stack([transform(image=image)["image"] for image in photographs])
        ours = apply_op(photographs, op, signed)
        within(ALBUMENTATIONS.get(op, EXACT), ours, theirs)


@pytest.mark.parametrize("op", ["Rotate", "ShearX", "TranslateY", "Cutout"])
def test_the_fill_value_is_exported(photographs, op, tmp_path):
    space = SearchSpace.of([op], [10], depth=1, fill=128)
    one = PolicySchedule(space, [1.0], [[1.0]])
    save_albumentations(one, tmp_path / "policy.json", 0, 1)
    for made in (albumentations_policy(one, 0, 1), load_albumentations(tmp_path / "policy.json")):
        if op == "Cutout":
            grey = made(image=np.full((80, 80, 3), 200, np.uint8))["image"]
            assert set(np.unique(grey)) == {128, 200}
            continue
        for image in photographs[:2]:
            found = made(image=image)["image"]
            signs = [
                apply_filled([image], op, [sign * space.argument(0)], 128)[0] for sign in (1, -1)
            ]
            assert any((found == ours).all(2).mean() > 0.99 for ours in signs)


def schedule(depth: int = 2) -> PolicySchedule:
    space = SearchSpace.of(["Invert", "FlipLR", "Equalize", "Rotate", "ShearX"], (5, 10), depth)
    p_o = [[0.1, 0.2, 0.3, 0.1, 0.1, 0.2, 0.0]]
    return PolicySchedule(space, [0.75], p_o)


def test_candidates_are_drawn_with_their_probabilities():
    one = schedule(depth=1)
    image = np.random.default_rng(0).integers(0, 256, (30, 30, 3), dtype=np.uint8)
    known = {image.tobytes(): "nothing"}
    for index, candidate in enumerate(one.space):
        argument = one.space.argument(index)
        for signed in (argument,) if argument is None else (argument, -argument):
            transform = A.Compose([transform_of(candidate.op, signed)])
            known[transform(image=image)["image"].tobytes()] = f"{candidate.op} {signed}"
    assert len(known) == 12
    transform = albumentations_policy(one, 0, 1)
    transform.set_random_seed(0)
    drawn = [known[transform(image=image)["image"].tobytes()] for _ in range(4000)]
    expected = {"nothing": 0.25, "Invert None": 0.075, "FlipLR None": 0.15, "Equalize None": 0.225}
    expected |= {f"Rotate {d}": 0.0375 for d in (15, -15, 30, -30)}
    expected |= {f"ShearX {a}": 0.075 for a in (0.15, -0.15)}
    assert set(drawn) == set(expected)
    for name, probability in expected.items():
        assert drawn.count(name) / 4000 == pytest.approx(probability, abs=0.025)


def test_a_policy_has_its_depth():
    transform = albumentations_policy(schedule(depth=3), 0, 1)
    assert len(transform.transforms[0].transforms) == 3


def test_the_json_gives_the_same_transform(tmp_path):
    path = tmp_path / "policy.json"
    save_albumentations(schedule(), path, 0, 1)
    transform = albumentations_policy(schedule(), 0, 1)
    again = load_albumentations(path)
    assert json.loads(path.read_text()) == json.loads(json.dumps(A.to_dict(again)))
    image = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    for policy in (transform, again):
        policy.set_random_seed(3)
    for _ in range(20):
        assert (transform(image=image)["image"] == again(image=image)["image"]).all()


@pytest.mark.parametrize("preset", ["cifar", "imagenet", "sanity", "digits"])
def test_every_space_can_be_exported(tmp_path, preset):
    space = SearchSpace.preset(preset)
    whole = PolicySchedule(space, [1.0], np.full((1, len(space)), 1 / len(space)))
    save_albumentations(whole, tmp_path / "policy.json", 0, 1)
    transform = load_albumentations(tmp_path / "policy.json")
    image = np.zeros((32, 32, 3), np.uint8)
    for _ in range(10):
        assert transform(image=image)["image"].shape == (32, 32, 3)


@pytest.mark.parametrize("content", ["{", "[]", '{"transform": {}}'])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(ValueError, match="other.json is not an exported policy"):
        load_albumentations(tmp_path / "other.json")
