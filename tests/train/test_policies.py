"""From --policy to a schedule: names, files, released policies, ablations, other image sizes."""

from __future__ import annotations

import numpy as np
import pytest

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.space import check_space
from ddas_gpu.train.policies import find_released, open_policy
from ddas_gpu.train.settings import preset


@pytest.fixture
def policy(tmp_path):
    space = SearchSpace.preset("cifar")
    p_o = np.random.default_rng(0).dirichlet(np.ones(52), size=3)
    path = tmp_path / "policy.json"
    PolicySchedule(space, [0.1, 0.2, 0.3], p_o, {"image_size": 32}).save(path)
    return path


def opened(data: str = "cifar10", **flags) -> PolicySchedule | None:
    return open_policy(preset(data).replace(**flags))


def test_none_augments_nothing():
    assert opened(policy="none") is None


@pytest.mark.parametrize("data", ["digits", "cifar10", "svhn", "imagenet", "folder"])
@pytest.mark.parametrize("name", ["uniform", "randaugment", "trivialaugment"])
def test_baselines_have_the_pixel_scale_of_the_data(data, name):
    schedule = opened(data, policy=name)
    expected = {"digits": 8, "cifar10": 10, "svhn": 10, "imagenet": 100, "folder": 20}
    assert schedule.space.scale.translate == expected[data]


def test_names_with_a_number(policy):
    assert opened("digits", policy="uniform-0.9").p_tp.tolist() == [0.9]
    schedule = opened("digits", policy="randaugment-5")
    assert {candidate.level for candidate in schedule.space} == {None, 5}
    with pytest.raises(ValueError, match="--randaugment-level is a level from 0 to 30, not 31"):
        opened("digits", policy="randaugment-31")
    with pytest.raises(ValueError, match="neither a file nor one of none"):
        opened("digits", policy="uniform-much")


def test_uniform_at_the_p_tp_of_a_policy(policy):
    schedule, whole = opened(policy=f"uniform:{policy}"), PolicySchedule.load(policy)
    assert schedule.p_tp.tolist() == [0.1, 0.2, 0.3] and schedule.space == whole.space
    assert np.ptp(schedule.p_o) == 0


def test_wide_shifts_follow_small_images():
    assert opened("digits", policy="trivialaugment-wide").space.scale.translate == 16
    assert opened("imagenet", policy="trivialaugment-wide").space.scale.translate == 32


@pytest.mark.parametrize("name", ["randaugment", "trivialaugment", "trivialaugment-wide"])
def test_baselines_move_boxes_along(name):
    schedule = opened("coco", policy=name)
    check_space(schedule.space, True, name)
    wide = {"randaugment": 27, "trivialaugment": 30, "trivialaugment-wide": 135}
    rotations = [i for i, c in enumerate(schedule.space) if c.op == "Rotate_BBox"]
    assert max(schedule.space.argument(i) for i in rotations) == wide[name]
    assert schedule.space.fill == 128


def test_a_file_is_replayed_as_it_is(policy):
    assert opened(policy=str(policy)) == PolicySchedule.load(policy)


def test_shifts_grow_with_the_images(policy, capsys):
    schedule = opened("imagenet", policy=str(policy))
    assert schedule.space.scale.translate == 70
    assert "searched at 32 pixels" in capsys.readouterr().err


def test_ablations(policy):
    whole = PolicySchedule.load(policy)
    static = opened(policy=str(policy), static="last")
    assert static.p_tp.tolist() == [0.3] * 3
    assert (static.p_o == whole.p_o[-1]).all()
    apply = opened(policy=str(policy), static="last-apply")
    assert apply.p_tp.tolist() == [0.3] * 3 and (apply.p_o == whole.p_o).all()
    ops = opened(policy=str(policy), static="last-ops")
    assert (ops.p_tp == whole.p_tp).all() and (ops.p_o == whole.p_o[-1]).all()
    fixed = opened(policy=str(policy), fixed_apply_probability=0.5)
    assert fixed.p_tp.tolist() == [0.5] * 3 and (fixed.p_o == whole.p_o).all()


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_released_policies_are_found(shared_data, monkeypatch, name):
    given = opened(policy=f"released:{name}", released_root=shared_data / "released_policies")
    monkeypatch.setenv("DDAS_DATA", str(shared_data))
    found = opened(policy=f"released:{name}")
    assert found == given
    assert f"_{name}_" in found.settings["released"]
    assert len(found) == 20


def test_released_policies_under_a_plain_name(tmp_path):
    (tmp_path / "cifar10.npy").write_bytes(b"")
    assert find_released("cifar10", tmp_path) == tmp_path / "cifar10.npy"
    with pytest.raises(ValueError, match="--released-root"):
        find_released("cifar100", tmp_path)
