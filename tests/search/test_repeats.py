"""`--repeats`: several seeds, one policy, resumed where it was cut."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from search_commands import TINY, refused, search

from ddas_gpu import PolicySchedule
from ddas_gpu.search import repeats

SHORT = (*TINY, "--epochs", "1", "--repeats", "2", "--seed", "3")


@pytest.fixture(autouse=True, scope="module")
def one_core():
    """New processes import torch, which takes longer than these searches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "cores", lambda: 1)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory, one_core) -> Path:
    folder = tmp_path_factory.mktemp("repeats") / "run"
    assert search(*SHORT, "--out", folder) == 0
    return folder


def test_the_policy_is_the_mean_of_the_seeds(whole):
    seeds = [PolicySchedule.load(whole / f"seed-{seed}") for seed in (3, 4)]
    schedule = PolicySchedule.load(whole)
    np.testing.assert_allclose(schedule.p_o, np.mean([own.p_o for own in seeds], 0))
    np.testing.assert_allclose(schedule.p_tp, np.mean([own.p_tp for own in seeds], 0))
    assert [entry["seed"] for entry in schedule.verdict["seeds"]] == [3, 4]
    assert schedule.verdict["steps"] == 8 and schedule.settings["repeats"] == 2
    assert "with 2 seeds, joined" in (whole / "report.html").read_text()


def test_a_run_that_was_cut_goes_on_with_the_seed_it_was_at(whole, tmp_path, capsys):
    cut = tmp_path / "cut"
    shutil.copytree(whole, cut)
    (cut / "policy.json").unlink()
    shutil.rmtree(cut / "seed-4")
    before = (cut / "seed-3" / "checkpoint.pt").stat().st_mtime_ns
    assert search("--resume", "--out", cut) == 0
    assert (cut / "policy.json").read_bytes() == (whole / "policy.json").read_bytes()
    assert (cut / "seed-3" / "checkpoint.pt").stat().st_mtime_ns >= before
    said = capsys.readouterr().out
    assert "over 2 seeds" in said and "TrivialAugment is a good choice" in said
    assert "ddas train --data digits --policy trivialaugment" in said


def test_what_is_refused_leaves_nothing_behind(tmp_path, capsys):
    missing = ("--data", "folder", "--root", tmp_path / "none")
    assert "none" in refused(capsys, tmp_path, *SHORT, *missing)


def test_ranks_are_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(repeats.torchrun, "launched", lambda: True)
    assert "once for each --seed" in refused(capsys, tmp_path, *SHORT)


@pytest.mark.slow
def test_side_by_side_is_the_same_as_one_after_the_other(whole, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(repeats, "cores", lambda: 2)
    assert search(*SHORT, "--out", tmp_path / "run") == 0
    assert "2 seeds, 2 side by side" in capfd.readouterr().err
    for name in ("policy.json", "seed-3/policy.json", "seed-4/policy.json"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes()
