"""The search under torchrun, in real processes: what it writes, how it fails and goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from commands import metrics
from search_commands import results, search
from torchrun_commands import TINY, run, said, start

from ddas_gpu.runs.runner import Interrupts

MORTAL = (*TINY, "--model", "mortal_model:build")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, str, str]:
    """The folder of a run on two ranks that nothing disturbed, and what was printed."""
    folder = tmp_path_factory.mktemp("whole")
    code, out, err = run("search", *MORTAL, "--out", folder / "run", DDAS_TEST_DEATHS=folder)
    assert code == 0, err
    return folder / "run", out, err


def test_one_rank_writes_and_prints(whole):
    folder, out, err = whole
    assert out.count("policy.json") == out.count("report.html") == out.count("most probable") == 1
    assert err.count("searching 30 candidates") == err.count("step 8/8") == 1
    assert [line["step"] for line in metrics(folder)] == list(range(8))
    assert metrics(folder)[0]["images"] == 4 * 8 + 20
    settings = json.loads((folder / "config.json").read_text())["settings"]
    assert (settings["ranks"], settings["batch_size"]) == (2, 4)
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_a_killed_rank_is_missed_and_the_restart_ends_in_the_same_bytes(whole, tmp_path):
    flags = (*MORTAL, "--out", tmp_path / "run", "--checkpoint-seconds", 0.0001)
    deaths = tmp_path / "deaths"
    code, out, err = run("search", *flags, restarts=1, DDAS_TEST_DEATHS=deaths)
    assert code == 0, err
    assert deaths.exists()
    told = said("search", err)
    assert len(told) == 1, err
    assert "rank 0 of 2 has lost contact with the others" in told[0]
    assert out.count("policy.json") == 1
    assert results(tmp_path / "run") == results(whole[0])


def test_a_signal_stops_all_ranks_after_the_same_step_and_one_process_goes_on(tmp_path):
    flags = (*TINY, "--epochs", 40, "--out", tmp_path / "run")
    process = start("search", *flags)
    for line in process.stderr:
        if line.startswith("epoch 2/40, step 8/"):
            break
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode != 0
    assert told.count("go on with: torchrun … -m ddas_gpu.search --resume --out") == 1
    done = len(metrics(tmp_path / "run"))
    assert 8 <= done < 160
    assert search("--resume", "--out", tmp_path / "run") == 0
    assert [line["step"] for line in metrics(tmp_path / "run")] == list(range(160))
    assert {line["images"] for line in metrics(tmp_path / "run")} == {4 * 8 + 20}


@pytest.mark.gpu
def test_on_all_gpus_of_this_machine(tmp_path):
    """NCCL, as far as one machine goes."""
    ranks = torch.cuda.device_count()
    flags = ("--train-images", 32 * ranks, "--val-images", 40 * ranks, "--sync-norm")
    out = tmp_path / "run"
    code, _, err = run("search", *TINY, *flags, "--device", "cuda", "--out", out, ranks=ranks)
    assert code == 0, err
    assert len(metrics(out)) == 2 * 8


def test_ctrl_c_through_torchrun_as_well_is_no_second_one(monkeypatch):
    """The terminal sends it to all processes, and torchrun then to every rank."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.received == signal.SIGINT
    monkeypatch.delenv("TORCHELASTIC_RUN_ID")
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def test_what_is_wrong_is_said_once(tmp_path):
    code, out, err = run("search", *TINY, "--data", "cifar10", "--root", tmp_path / "nowhere")
    assert code != 0
    assert out == ""
    (line,) = said("search", err)
    assert "no folder" in line
    assert "exitcode  : 2" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "environment", "reason"),
    [
        ((), {"TORCHELASTIC_MAX_RESTARTS": "3"}, "--max-restarts needs --out"),
        (
            ("--batch-size", "20"),
            {"WORLD_SIZE": "2"},
            "--batch-size 20 on 2 ranks is larger than the set",
        ),
        (("--timeout", "0"), {}, "--timeout must be above 0"),
    ],
)
def test_flags_that_do_not_go_together(monkeypatch, capsys, flags, environment, reason):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert search(*TINY, *flags) == 2
    assert reason in capsys.readouterr().err


def test_only_one_rank_of_a_machine_complains_about_flags(monkeypatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert search(*TINY, "--no-such-flag") == 2
    assert search(*TINY, "--lr", "-1") == 2
    told = capsys.readouterr()
    assert told.out == told.err == ""
