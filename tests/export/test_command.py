"""The export command."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.export.__main__ import main
from ddas_gpu.exports import dali_policy, load_albumentations


@pytest.fixture
def policy(tmp_path):
    space = SearchSpace.of(["Invert", "Rotate"], [5])
    path = tmp_path / "policy.json"
    PolicySchedule(space, [0.0, 1.0], [[0.5, 0.5], [1.0, 0.0]]).save(path)
    return path


def test_albumentations(policy, capsys):
    pytest.importorskip("albumentations")
    assert main([str(policy)]) == 0
    out = policy.with_name("policy.albumentations.json")
    assert capsys.readouterr().out == f"{out}\n"
    image = np.full((4, 4, 3), 9, np.uint8)
    assert (load_albumentations(out)(image=image)["image"] == 9).all()  # inverted twice
    assert main([str(policy), "--epoch", "0", "--epochs", "10", "--out", str(out)]) == 0
    assert load_albumentations(out).transforms[0].p == 0


def test_dali(policy):
    pytest.importorskip("nvidia.dali")
    assert main([str(policy), "--to", "dali", "--epoch", "0"]) == 0
    spec = importlib.util.spec_from_file_location("made", policy.with_name("policy_dali.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    expected = dali_policy(PolicySchedule.load(policy), 0, 2)
    assert module.policy.name == "epoch 0 of 2"
    ours, theirs = (
        [[(a.name, p, bin) for a, p, bin in row] for row in policy.sub_policies]
        for policy in (module.policy, expected)
    )
    assert ours == theirs


def test_another_image_size_from_the_folder_of_a_run(tmp_path):
    pytest.importorskip("albumentations")
    pytest.importorskip("nvidia.dali")
    space = SearchSpace.of(["TranslateX"], [10], depth=1)  # 10 pixels of 100
    schedule = PolicySchedule(space, [1.0], [[1.0]], {"image_size": 100})
    schedule.save(tmp_path / "policy.json")
    assert main([str(tmp_path), "--image-size", "50"]) == 0
    image = np.full((50, 50, 3), 255, np.uint8)
    found = load_albumentations(tmp_path / "policy.albumentations.json")(image=image)["image"]
    assert (found == 0).all((0, 2)).sum() == 5
    assert main([str(tmp_path), "--image-size", "50", "--to", "dali"]) == 0
    assert ".scaled(50), epoch=0" in (tmp_path / "policy_dali.py").read_text()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--epoch", "2"], "epoch 2 is not one of 0 … 1"),
        (["--epochs", "0"], "at least 1 epoch"),
        (["--out", "/nowhere/x.json"], "/nowhere"),
    ],
)
def test_wrong_input(policy, capsys, flags, reason):
    pytest.importorskip("albumentations")
    before = set(policy.parent.iterdir())
    assert main([str(policy), *flags]) == 2
    told = capsys.readouterr()
    assert reason in told.err and told.err.count("\n") == 1 and told.out == ""
    assert set(policy.parent.iterdir()) == before


def test_not_a_policy(tmp_path, capsys):
    (tmp_path / "policy.json").write_text("{}")
    assert main([str(tmp_path / "policy.json")]) == 2
    assert "not a policy" in capsys.readouterr().err
    assert main([str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
