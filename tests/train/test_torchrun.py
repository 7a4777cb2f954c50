"""Training under torchrun, in real processes: what it writes, how it fails and goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from commands import metrics
from torchrun_commands import run, said
from train_commands import results, train

from ddas_gpu.runs.run_folder import sealed, unsealed

# 4 steps an epoch, 8 in all, on two ranks.
TINY = (
    *"--epochs 2 --train-share 0.03 --test-share 0.05 --batch-size 4 --test-batch-size 10".split(),
    *"--threads 1 --policy uniform --model mortal_model:build".split(),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, str]:
    """The folder of a run on two ranks that nothing disturbed, and what was printed."""
    folder = tmp_path_factory.mktemp("whole")
    code, out, err = run("train", *TINY, "--out", folder / "run", DDAS_TEST_DEATHS=folder)
    assert code == 0, err
    return folder / "run", out


def test_one_rank_writes_and_prints(whole):
    folder, out = whole
    assert out.count("last.pt") == out.count("report.html") == 1
    assert [line["step"] for line in metrics(folder)] == [4, 8]
    assert {line["images"] for line in metrics(folder)} == {4 * 8}
    assert json.loads((folder / "config.json").read_text())["settings"]["ranks"] == 2
    weights = torch.load(folder / "last.pt", weights_only=True)["weights"]
    assert not [name for name in weights if name.startswith("module.")]


@pytest.mark.slow  # the search's way of starting again, which has a test in the common run
def test_a_killed_rank_is_missed_and_the_restart_ends_in_the_same_bytes(whole, tmp_path):
    flags = (*TINY, "--out", tmp_path / "run", "--checkpoint-seconds", 0.0001)
    deaths = tmp_path / "deaths"
    code, _, err = run("train", *flags, restarts=1, DDAS_TEST_DEATHS=deaths)
    assert code == 0, err
    assert deaths.exists()
    (line,) = said("train", err)
    assert "rank 0 of 2 has lost contact with the others" in line
    assert results(tmp_path / "run") == results(whole[0])


def test_one_process_goes_on_where_two_ranks_stopped(whole, tmp_path, monkeypatch):
    """What is left of the steps is the same, so that only batch norm's statistics can differ."""
    folder = tmp_path / "run"
    folder.mkdir()
    for file in whole[0].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    path = folder / "checkpoint.pt"
    checkpoint = unsealed(path.read_bytes(), path)
    checkpoint["training"]["steps"] = 4
    path.write_bytes(sealed(checkpoint))
    assert train("--resume", "--out", folder, "--model", "mortal_model:build") == 0
    assert [line["step"] for line in metrics(folder)] == [4, 8]
    assert {line["images"] for line in metrics(folder)} == {4 * 8}
