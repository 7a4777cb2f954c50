"""The command: what it writes, how it stops and goes on, and what it says to bad input."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import Killed, die, full_disk, metrics
from PIL import Image
from train_commands import TINY, at_step, refused, results, start, train

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.models import build
from ddas_gpu.runs.training_folder import TrainingFolder

FILES = {
    *("config.json", "policy.json", "metrics.jsonl", "checkpoint.pt", "best.pt"),
    *("samples.npz", "report.html"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The folder of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert train(*TINY, "--out", folder) == 0
    return folder


# --- what the user gets ---------------------------------------------------------------------------


def test_the_run_folder(whole):
    assert {path.name for path in whole.iterdir()} == FILES
    config = json.loads((whole / "config.json").read_text())
    assert (config["version"], config["command"]) == (1, "train")
    assert config["settings"]["train_share"] == 0.03
    assert PolicySchedule.load(whole / "policy.json").settings == {"baseline": "uniform"}


def test_a_line_of_metrics_an_epoch(whole):
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1]
    assert [line["step"] for line in lines] == [4, 8]
    assert set(lines[0]["seconds"]) == {"data", "training", "evaluation"}
    assert lines[0]["images"] == 32
    assert lines[0]["apply_probability"] == 0.35
    assert lines[1]["best_accuracy"] == max(line["test_accuracy"] for line in lines)


def test_the_best_weights_can_be_used_elsewhere(whole):
    content = torch.load(whole / "best.pt", weights_only=True)
    model = build(content["model"], len(content["class_names"]))
    model.load_state_dict(content["weights"])
    lines = metrics(whole)
    assert content["accuracy"] == lines[content["epoch"]]["test_accuracy"]
    assert content["image_size"] == 16


def test_the_end_says_where_things_are(tmp_path, capsys):
    assert train(*TINY, "--epochs", 1, "--out", tmp_path / "run") == 0
    told = capsys.readouterr()
    assert str(tmp_path / "run" / "best.pt") in told.out
    assert str(tmp_path / "run" / "report.html") in told.out
    assert "best test accuracy" in told.out
    assert "epoch 1/1" in told.err


def test_epochs_that_are_not_tested_say_so_by_silence(tmp_path, capsys):
    assert train(*TINY, "--evaluate-every", 2, "--out", tmp_path / "run") == 0
    first, second = (line for line in capsys.readouterr().err.splitlines() if "epoch" in line)
    assert "test accuracy" not in first and "test accuracy" in second
    assert "test_accuracy" not in metrics(tmp_path / "run")[0]


def test_folders_without_a_name_never_collide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert train(*TINY, "--epochs", 1) == 0
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"digits-1", "digits-2"}


def test_the_same_seed_gives_the_same_bytes(whole, tmp_path):
    assert train(*TINY, "--out", tmp_path / "again") == 0
    assert results(tmp_path / "again") == results(whole)
    assert train(*TINY, "--seed", 1, "--out", tmp_path / "other") == 0
    assert results(tmp_path / "other")["best"] != results(whole)["best"]


def test_no_policy_leaves_no_policy_file(tmp_path):
    assert train(*TINY, "--policy", "none", "--out", tmp_path / "run") == 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES - {"policy.json"}
    assert metrics(tmp_path / "run")[0]["apply_probability"] == 0


def test_a_policy_is_replayed_epoch_by_epoch(tmp_path):
    space = SearchSpace.preset("digits")
    p_o = np.full((2, len(space)), 1 / len(space))
    PolicySchedule(space, [0.2, 0.6], p_o).save(tmp_path / "policy.json")
    flags = (*TINY, "--epochs", 4, "--policy", tmp_path / "policy.json")
    assert train(*flags, "--out", tmp_path / "run") == 0
    replayed = [line["apply_probability"] for line in metrics(tmp_path / "run")]
    assert replayed == [0.2, 0.2, 0.6, 0.6]
    assert train(*flags, "--static", "last", "--out", tmp_path / "static") == 0
    assert [line["apply_probability"] for line in metrics(tmp_path / "static")] == [0.6] * 4


def test_a_policy_can_be_named_by_its_run(whole, tmp_path):
    assert train(*TINY, "--policy", whole, "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


def test_help_needs_no_torch():
    code = (
        "import sys; from ddas_gpu.train.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--policy" in done.stdout


# --- stopping and going on ------------------------------------------------------------------------


EXTRAS = ("--moving-average", 0.9, "--label-smoothing", 0.1)


@pytest.fixture(scope="module")
def whole_with_extras(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("extras") / "run"
    assert train(*TINY, *EXTRAS, "--out", folder) == 0
    return folder


@pytest.mark.parametrize("cut", [0, 1, 4, 6])
@pytest.mark.parametrize("seconds", [0.0001, 1000], ids=["each step", "each epoch"])
def test_a_run_cut_anywhere_resumes_to_the_same_bytes(
    whole_with_extras, tmp_path, monkeypatch, cut, seconds
):
    flags = (*EXTRAS, "--out", tmp_path / "run", "--checkpoint-seconds", seconds)
    with monkeypatch.context() as patch:
        at_step(patch, cut, die)
        with pytest.raises(Killed):
            train(*TINY, *flags)
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole_with_extras)


@pytest.mark.parametrize("place", ["save_best", "add_metrics", "save_checkpoint"])
def test_a_run_cut_at_the_end_of_an_epoch(whole, tmp_path, monkeypatch, place):
    with monkeypatch.context() as patch:
        real, calls = getattr(TrainingFolder, place), []

        def write(self, content):
            calls.append(content)
            if len(calls) == 2:
                raise Killed
            real(self, content)

        patch.setattr(TrainingFolder, place, write)
        with pytest.raises(Killed):
            train(*TINY, "--out", tmp_path / "run")
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_finish_the_step_and_say_how_to_go_on(
    whole, tmp_path, monkeypatch, capsys, number, code
):
    with monkeypatch.context() as patch:
        at_step(patch, 5, lambda: os.kill(os.getpid(), number))
        assert train(*TINY, "--out", tmp_path / "run") == code
    assert f"ddas_gpu.train --resume --out {tmp_path / 'run'}" in capsys.readouterr().err
    assert torch.load(tmp_path / "run" / "checkpoint.pt")["training"]["steps"] == 6
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


def test_a_real_process_killed_resumes_to_the_same_bytes(tmp_path):
    flags = (*TINY, "--epochs", 12, "--seed", 7)
    process = start(*flags, "--out", tmp_path / "run", "--checkpoint-seconds", 0.05)
    for line in process.stderr:
        if line.startswith("epoch 3/12"):
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "run" / "report.html").exists()
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert train(*flags, "--out", tmp_path / "whole") == 0
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES


def test_resuming_a_finished_run_changes_nothing(whole):
    before = results(whole)
    assert train("--resume", "--out", whole) == 0
    assert results(whole) == before


@pytest.mark.parametrize(
    ("flag", "value", "name"),
    [("--batch", 4, "--batch 8"), ("--policy", "none", "--policy uniform")],
)
def test_resume_refuses_other_settings(whole, capsys, flag, value, name):
    before = results(whole)
    assert train("--resume", "--out", whole, flag, value) == 2
    assert f"was started with {name}, not {value}" in capsys.readouterr().err
    assert results(whole) == before


def test_a_resumed_run_keeps_its_policy_when_the_file_is_gone(whole, tmp_path, monkeypatch):
    policy = tmp_path / "policy.json"
    policy.write_bytes((whole / "policy.json").read_bytes())
    with monkeypatch.context() as patch:
        at_step(patch, 5, die)
        with pytest.raises(Killed):
            train(*TINY, "--policy", policy, "--out", tmp_path / "run")
    policy.unlink()
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


# --- bad input: one sentence, exit code 2, nothing left behind ------------------------------------


NUMBERS = {
    "--batch 37": "--batch 37 is larger than the set, which has 36 training images",
    "--evaluate-every 0": "--evaluate-every must be above 0",
    "--model retinanet-r18": "is a detector: it needs --data coco",
    "--epochs 0": "--epochs must be above 0",
    "--lr nan": "--lr must be above 0",
    "--scale 2": "--scale is a share above 0 and up to 1",
    "--train-share 0": "--train-share is a share above 0",
    "--label-smoothing 1": "--label-smoothing lies in [0, 1)",
    "--moving-average 1": "--moving-average lies in [0, 1)",
    "--fixed-apply-probability 1.5": "--fixed-apply-probability lies in [0, 1]",
    "--policy none --static last": "--static needs a policy",
    "--longest-gradient -1": "--longest-gradient cannot be negative",
    "--seed -1": "--seed cannot be negative",
    "--svhn-extra": "--svhn-extra is for --data svhn",
    "--crop resized": "--crop resized is for image files",
    "--policy nowhere.json": "is neither a file nor one of none, uniform",
    "--policy released:moon": "no released policy 'moon'",
    "--policy released:cifar10": "the released policy of cifar10 is not in data/released_policies",
    "--policy randaugment --randaugment-level 31": "is a level from 0 to 30",
    "--model resnet-9000": "no ResNet of depth 9000",
    "--model nowhere:build": "cannot import 'nowhere'",
    "--root somewhere": "scikit-learn",
    "--resize keep-ratio": "--resize is for detection: it needs --data coco",
    "--data coco": "coco not found: no folder data/coco; it must hold annotations/",
}


@pytest.mark.parametrize(("flags", "reason"), NUMBERS.items())
def test_numbers_and_names_that_cannot_be(capsys, tmp_path, monkeypatch, flags, reason):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DDAS_DATA", raising=False)
    assert reason in refused(capsys, tmp_path, *TINY, *flags.split())


def good_policy() -> dict:
    space = SearchSpace.of(["Invert", "Rotate"], [5])
    return PolicySchedule(space, [0.5], [[0.25, 0.75]]).to_json()


POLICIES = {
    "not JSON": ("{", "is not JSON"),
    "no policy": ({}, "not a policy"),
    "another version": ({"version": 2}, "a policy of version 2"),
    "another K": ({"p_o": [[0.2, 0.3, 0.5]]}, "a space of 2 candidates"),
    "another op": ({"space": {"candidates": [["Twist"]]}}, "unknown op 'Twist'"),
    "not a number": ({"p_tp": [float("nan")]}, "not a finite number"),
    "not a distribution": ({"p_o": [[0.2, 0.3]]}, "sums to 0.5"),
}


@pytest.mark.parametrize(("change", "reason"), POLICIES.values(), ids=POLICIES)
def test_policies_that_cannot_be(capsys, tmp_path, change, reason):
    path = tmp_path / "bad.json"
    content = change or {}
    if isinstance(change, dict):
        content = json.dumps(good_policy() | change if change else {})
    path.write_text(content)
    told = refused(capsys, tmp_path, *TINY, "--policy", path)
    assert reason in told and "bad.json" in told


def test_a_pickle_is_no_released_policy(capsys, tmp_path):
    (tmp_path / "x_cifar10_y.npy").write_bytes(pickle.dumps(print))
    flags = ("--policy", "released:cifar10", "--released-root", tmp_path)
    assert "is not an .npy file" in refused(capsys, tmp_path, *TINY, *flags)


def test_missing_roots(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DDAS_DATA", raising=False)
    for name in ("cifar10", "cifar100", "svhn", "imagenet"):
        assert f"no folder data/{name}; it must hold" in refused(capsys, tmp_path, "--data", name)
    assert "--data folder needs --root" in refused(capsys, tmp_path, "--data", "folder")


def write_classes(root: Path, classes: str = "ab", count: int = 6) -> Path:
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (20, 18), (number, ord(name), 0)).save(root / name / f"{number}.png")
    return root


FOLDER = [
    *"--data folder --model small --image-size 16 --epochs 2 --batch 4 --test-batch 5".split(),
    *"--policy uniform --threads 1".split(),
]


def test_image_files_are_trained_on_and_resumed(tmp_path, monkeypatch):
    write_classes(tmp_path / "data" / "train")
    write_classes(tmp_path / "data" / "test", count=3)
    flags = (*FOLDER, "--root", tmp_path / "data", "--checkpoint-seconds", 0.0001)
    assert train(*flags, "--out", tmp_path / "whole") == 0
    with monkeypatch.context() as patch:
        at_step(patch, 4, die)  # in the middle of the second epoch
        with pytest.raises(Killed):
            train(*flags, "--out", tmp_path / "run")
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_resume_refuses_other_images(tmp_path, monkeypatch, capsys):
    write_classes(tmp_path / "data" / "train")
    write_classes(tmp_path / "data" / "test", count=3)
    with monkeypatch.context() as patch:
        at_step(patch, 2, die)
        with pytest.raises(Killed):
            train(*FOLDER, "--root", tmp_path / "data", "--out", tmp_path / "run")
    (tmp_path / "data" / "train" / "a" / "0.png").unlink()
    assert train("--resume", "--out", tmp_path / "run") == 2
    assert "other images" in capsys.readouterr().err


def test_classes_that_differ(capsys, tmp_path):
    write_classes(tmp_path / "data" / "train")
    write_classes(tmp_path / "data" / "val", classes="abc")
    told = refused(capsys, tmp_path, *FOLDER, "--root", tmp_path / "data")
    assert "2 classes of training images and 3 of test images" in told and told.endswith("c")


def test_no_test_images(capsys, tmp_path):
    write_classes(tmp_path / "data")
    told = refused(capsys, tmp_path, *FOLDER, "--root", tmp_path / "data")
    assert "has no test images" in told and "--test-root" in told
    told = refused(
        capsys, tmp_path, *FOLDER, "--root", tmp_path / "data", "--test-root", tmp_path / "no"
    )
    assert "no folder" in told


def test_unreadable_image_files(capsys, tmp_path):
    write_classes(tmp_path / "data" / "train")
    write_classes(tmp_path / "data" / "test")
    broken = tmp_path / "data" / "train" / "b" / "3.png"
    broken.write_bytes(broken.read_bytes()[:50])
    told = refused(capsys, tmp_path, *FOLDER, "--root", tmp_path / "data")
    assert "3.png" in told and "--bad-files skip" in told


def test_unreadable_image_files_can_be_skipped(tmp_path):
    write_classes(tmp_path / "data" / "train")
    write_classes(tmp_path / "data" / "test", count=3)
    (tmp_path / "data" / "train" / "b" / "3.png").write_bytes(b"")
    flags = (*FOLDER, "--root", tmp_path / "data", "--bad-files", "skip", "--out", tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="3.png"):
        assert train(*flags) == 0
    assert metrics(tmp_path / "run")[0]["images"] == 8  # of 11, in batches of 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu(capsys, tmp_path):
    assert "no CUDA GPU" in refused(capsys, tmp_path, *TINY, "--device", "cuda")


@pytest.mark.parametrize("flags", ["--data moon", "--batch many", "--no-such-flag 1"])
def test_flags_that_do_not_exist(capsys, tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    assert train(*flags.split()) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_another_run_is_left_alone(whole, capsys):
    before = results(whole)
    assert train(*TINY, "--seed", 1, "--out", whole) == 2
    assert "already holds a run: add --resume" in capsys.readouterr().err
    assert results(whole) == before


def test_damaged_and_foreign_checkpoints(whole, capsys, tmp_path):
    for path in whole.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    checkpoint, config = tmp_path / "checkpoint.pt", tmp_path / "config.json"
    state, settings = checkpoint.read_bytes(), config.read_bytes()

    def told() -> str:
        assert train("--resume", "--out", tmp_path) == 2
        return capsys.readouterr().err

    for bad in (state[: len(state) // 2], b"", pickle.dumps(print, 2)):
        checkpoint.write_bytes(bad)
        assert "is not a checkpoint of this program" in told()
    torch.save({"version": 1, "search": {}}, checkpoint)
    assert "is not one of a training" in told()
    checkpoint.write_bytes(state)
    config.write_bytes(settings.replace(b'"small"', b'"wrn-10-1"'))
    assert "the checkpoint is not one of the model wrn-10-1" in told()
    config.write_bytes(settings.replace(b'"train",', b'"search",'))
    assert "is not the configuration of a training" in told()
    config.write_bytes(settings)
    assert train("--resume", "--out", tmp_path) == 0


def test_a_disk_that_is_full_from_the_start(capsys, tmp_path, monkeypatch):
    full_disk(monkeypatch, after=0)
    assert train(*TINY, "--out", tmp_path / "run") == 2
    assert "the disk is full" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("after", [5, 6, 7])
def test_a_disk_that_fills_up_keeps_the_last_checkpoint(
    whole, capsys, tmp_path, monkeypatch, after
):
    with monkeypatch.context() as patch:
        full_disk(patch, after)
        assert train(*TINY, "--out", tmp_path / "run") == 2
    assert "the disk is full" in capsys.readouterr().err
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]
    assert train("--resume", "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


def test_a_loss_that_is_no_number_keeps_the_last_checkpoint(capsys, tmp_path):
    flags = ("--out", tmp_path, "--lr", "1e30", "--checkpoint-seconds", 0.0001)
    assert train(*TINY, *flags) == 2
    assert "no longer a finite number" in capsys.readouterr().err
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["training"]
    assert all(weight.isfinite().all() for weight in state["model"].values())
    assert not (tmp_path / "report.html").exists()
