"""The export command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.export.__main__ import main
from ddas_gpu.export.standalone import TARGETS


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    space = SearchSpace.of(["Invert", "Rotate"], [5])
    path = tmp_path / "run" / "policy.json"
    path.parent.mkdir()
    settings = {"data": "digits", "model": "small", "root": str(tmp_path)}
    PolicySchedule(space, [0.0, 1.0], [[0.5, 0.5], [1.0, 0.0]], settings).save(path)
    return path


@pytest.mark.parametrize("target", TARGETS)
def test_a_policy_or_its_run(policy: Path, tmp_path: Path, capsys, target: str):
    assert main([str(policy), "--to", target]) == 0
    out = policy.with_name(f"policy_{target}.py")
    assert capsys.readouterr().out == f"{out}\n"
    text = out.read_text("utf-8")
    assert main([str(policy.parent), "--to", target, "--out", str(tmp_path / "x.py")]) == 0
    assert (tmp_path / "x.py").read_text("utf-8") == text
    assert str(tmp_path) not in text  # no path of this machine
    assert "data digits, model small" in text
    assert f"pillow {json.loads(policy.read_text())['versions']['pillow']}" in text


def test_pillow_is_the_default(policy: Path):
    assert main([str(policy)]) == 0
    code = (
        "import policy_pillow, numpy as np\n"
        "policy = policy_pillow.Policy(epochs=10)\n"
        "image = np.full((4, 4, 3), 9, np.uint8)\n"
        "policy.set_epoch(9)\n"  # p_tp 1, Invert twice
        "assert (policy(image) == 9).all() and policy(image) is not image\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=policy.parent, check=True)


def test_another_image_size_from_the_folder_of_a_run(tmp_path: Path):
    space = SearchSpace.of(["TranslateX"], [10], depth=1)  # 10 pixels of 100
    schedule = PolicySchedule(space, [1.0], [[1.0]], {"image_size": 100})
    schedule.save(tmp_path / "policy.json")
    assert main([str(tmp_path), "--image-size", "50"]) == 0
    code = (
        "import policy_pillow, numpy as np\n"
        "image = np.full((50, 50, 3), 255, np.uint8)\n"
        "changed = policy_pillow.Policy(epochs=1)(image)\n"
        "assert (changed == 0).all((0, 2)).sum() == 5\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def refused(capsys, *arguments: str | Path) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_an_unfinished_search_is_to_be_resumed(tmp_path: Path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"command": "search"}, indent=2))
    again = f"resume it with ddas search --resume --out {tmp_path}"
    assert again in refused(capsys, tmp_path)


def test_wrong_input(policy: Path, tmp_path: Path, capsys):
    before = set(policy.parent.iterdir())
    assert "/nowhere" in refused(capsys, policy, "--out", "/nowhere/x.py")
    assert "is the policy itself" in refused(capsys, policy, "--out", policy)
    assert "holds no policy.json" in refused(capsys, tmp_path)
    assert "none.json" in refused(capsys, tmp_path / "none.json")
    (tmp_path / "other.json").write_text("{}")
    assert "not a policy" in refused(capsys, tmp_path / "other.json")
    assert set(policy.parent.iterdir()) == before


def test_a_training_without_a_policy(tmp_path: Path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"command": "train"}, indent=2))
    assert "has no policy.json" in refused(capsys, tmp_path)
