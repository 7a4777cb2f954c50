"""The examples run, learn, and resume."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ddas_gpu import PolicySchedule, SearchSpace

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    space = SearchSpace.preset("digits")
    rows = np.full((2, len(space)), 1 / len(space))
    PolicySchedule(space, np.array([0.2, 0.4]), rows).save(tmp_path / "policy.json")
    return tmp_path / "policy.json"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small only lose by sharing their work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(name: str, *arguments: object) -> float:
    """The accuracy that an example ends with."""
    return runpy.run_path(str(EXAMPLES / name))["main"]([str(a) for a in arguments])


def test_plain_loop_learns_and_resumes(policy: Path, capsys):
    settings = ("--policy", policy, "--epochs", 2, "--checkpoint", policy.with_name("state.pt"))
    pytest.importorskip("nvidia.dali")
    score = run("plain_loop.py", *settings)
    assert score > 0.7
    assert "epoch 2" in capsys.readouterr().out
    assert run("plain_loop.py", *settings) == score  # nothing was left to do
    assert "epoch" not in capsys.readouterr().out


def test_lightning_style_learns(policy: Path):
    pytest.importorskip("nvidia.dali")
    assert run("lightning_style.py", "--policy", policy, "--epochs", 2) > 0.8


@pytest.mark.parametrize("workers", [0, 2])
def test_an_existing_dataloader_learns(policy: Path, workers: int):
    settings = ("--policy", policy, "--epochs", 2, "--workers", workers)
    assert run("existing_dataloader.py", *settings) > 0.7


def test_every_example_is_tested():
    tested = Path(__file__).read_text("utf-8")
    for example in EXAMPLES.glob("*.py"):
        assert example.name in tested
