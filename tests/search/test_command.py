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
from search_commands import TINY, at_step, refused, results, search, start

from ddas_gpu import PolicySchedule
from ddas_gpu.runs import folder as runs

FILES = {
    *("config.json", "policy.json", "metrics.jsonl", "checkpoint.pt"),
    *("samples.npz", "split.json", "report.html"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The folder of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert search(*TINY, "--out", folder) == 0
    return folder


# --- what the user gets ---------------------------------------------------------------------------


def test_the_split_is_listed(whole):
    split = json.loads((whole / "split.json").read_text())
    settings = json.loads((whole / "config.json").read_text())["settings"]
    assert len(split["train"]) == settings["train_images"]
    assert len(split["validation"]) == settings["val_images"]
    assert not set(split["train"]) & set(split["validation"])


def test_the_run_folder(whole):
    assert {path.name for path in whole.iterdir()} == FILES
    config = json.loads((whole / "config.json").read_text())
    assert (config["version"], config["command"]) == (1, "search")
    assert config["settings"]["data"] == "digits"
    assert config["settings"]["train_images"] == 32
    assert set(config["versions"]) == {"python", "torch", "numpy", "pillow", "ddas_gpu"}
    schedule = PolicySchedule.load(whole / "policy.json")
    assert len(schedule) == 2
    assert schedule.settings["seed"] == 0
    assert "out" not in schedule.settings


def test_a_line_of_metrics_a_step(whole):
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(8))
    assert [line["epoch"] for line in lines] == [0] * 4 + [1] * 4
    assert set(lines[0]["seconds"]) == {
        *("data", "augment", "gradients", "validation", "dot", "update")
    }
    assert lines[0]["images"] == 4 * 8 + 20
    last = PolicySchedule.load(whole / "policy.json").p_tp
    assert last[-1] == pytest.approx(
        (lines[3]["apply_probability"] + lines[7]["apply_probability"]) / 2
    )


def test_samples_for_the_report(whole):
    with np.load(whole / "samples.npz") as samples:
        assert samples["images"].shape == (8, 16, 16, 3)
        assert samples["images"].dtype == np.uint8
        assert [int(name) for name in samples["names"]] == samples["labels"].tolist()


def test_the_end_says_where_things_are(tmp_path, capsys):
    assert search(*TINY, "--epochs", 1, "--out", tmp_path / "run") == 0
    told = capsys.readouterr()
    assert str(tmp_path / "run" / "policy.json") in told.out
    assert str(tmp_path / "run" / "report.html") in told.out
    assert "most probable" in told.out
    assert "step 4/4" in told.err


def test_folders_without_a_name_never_collide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert search(*TINY, "--epochs", 1) == 0
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"digits-1", "digits-2"}


def test_the_same_seed_gives_the_same_bytes(whole, tmp_path):
    assert search(*TINY, "--out", tmp_path / "again") == 0
    assert results(tmp_path / "again") == results(whole)
    assert search(*TINY, "--seed", 1, "--out", tmp_path / "other") == 0
    assert results(tmp_path / "other")["policy"] != results(whole)["policy"]


@pytest.mark.parametrize("method", ["jvp", "layerwise", "reference"])
def test_all_ways_to_compare_gradients_agree(whole, tmp_path, method):
    assert search(*TINY, "--gradients", method, "--out", tmp_path / "run") == 0
    for ours, theirs in zip(metrics(whole), metrics(tmp_path / "run"), strict=True):
        assert ours["policies"] == theirs["policies"]
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)


def test_a_space_of_ones_own(tmp_path):
    space = {"ops": ["Invert", "Rotate"], "levels": [3, 9], "depth": 1}
    (tmp_path / "space.json").write_text(json.dumps(space))
    flags = ("--space", tmp_path / "space.json", "--out", tmp_path / "run")
    assert search(*TINY, *flags) == 0
    found = PolicySchedule.load(tmp_path / "run" / "policy.json").space
    assert [str(candidate) for candidate in found] == ["Invert", "Rotate 3", "Rotate 9"]
    assert found.depth == 1


def test_photographs_from_a_folder(imagenet_root, tmp_path):
    """Images of all sizes, and a validation set from another folder."""
    photographs = sorted((imagenet_root / "train").rglob("*.JPEG"))
    for number, path in enumerate(photographs[:176]):
        folder = tmp_path / ("here" if number < 88 else "there") / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / path.name).symlink_to(path)
    roots = ("--root", tmp_path / "here", "--val-root", tmp_path / "there")
    assert search(*FOLDER, *roots, "--out", tmp_path / "run") == 0
    assert len(metrics(tmp_path / "run")) == 8


def test_help_needs_no_torch():
    """torch takes seconds to import; nobody should wait that long for --help."""
    code = (
        "import sys\n"
        "from ddas_gpu.search.__main__ import main\n"
        "try:\n    main(['--data', 'cifar10', '--help'])\n"
        "finally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert "(default: wrn-40-2)" in done.stdout  # the defaults shown are the preset's
    assert done.returncode == 0


# --- stopping and going on ------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 5, 7])
@pytest.mark.parametrize("seconds", [0.0001, 1000], ids=["each step", "each epoch"])
def test_a_run_cut_anywhere_resumes_to_the_same_bytes(whole, tmp_path, monkeypatch, cut, seconds):
    flags = ("--out", tmp_path / "run", "--checkpoint-seconds", seconds)
    with monkeypatch.context() as patch:
        at_step(patch, cut, die)
        with pytest.raises(Killed):
            search(*TINY, *flags)
    assert not (tmp_path / "run" / "policy.json").exists()
    assert search("--resume", "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


def test_a_run_cut_again_and_again(whole, tmp_path, monkeypatch):
    for cut in (2, 5, 6):
        with monkeypatch.context() as patch:
            at_step(patch, cut, die)
            begin = TINY if cut == 2 else ["--resume"]
            with pytest.raises(Killed):
                search(*begin, "--out", tmp_path / "run")
    assert search("--resume", "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_finish_the_step_and_say_how_to_go_on(
    whole, tmp_path, monkeypatch, capsys, number, code
):
    with monkeypatch.context() as patch:
        at_step(patch, 2, lambda: os.kill(os.getpid(), number))
        assert search(*TINY, "--out", tmp_path / "run") == code
    assert f"--resume --out {tmp_path / 'run'}" in capsys.readouterr().err
    assert len(metrics(tmp_path / "run")) == 3
    before = signal.getsignal(number)
    assert search("--resume", "--out", tmp_path / "run") == 0
    assert signal.getsignal(number) is before
    assert results(tmp_path / "run") == results(whole)


def test_ctrl_c_twice_stops_at_once(tmp_path, monkeypatch):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    at_step(monkeypatch, 2, twice)
    assert search(*TINY, "--out", tmp_path / "run") == 130
    assert len(metrics(tmp_path / "run")) == 2


def wait_for_epoch(process: subprocess.Popen[str], number: int) -> None:
    """Follow what a process tells until it has done so many epochs."""
    for line in process.stderr:
        if line.startswith(f"epoch {number}, step {4 * number}/"):
            return
    raise AssertionError(f"the process ended first: {process.wait()}")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143)]
)
def test_a_real_process_killed_resumes_to_the_same_bytes(tmp_path, number, code):
    flags = (*TINY, "--epochs", 12, "--seed", 7)
    process = start(*flags, "--out", tmp_path / "run", "--checkpoint-seconds", 0.05)
    wait_for_epoch(process, 3)
    process.send_signal(number)
    _, told = process.communicate()
    assert process.returncode == code
    assert ("--resume" in told) == (number == signal.SIGTERM)
    assert not (tmp_path / "run" / "policy.json").exists()
    assert search("--resume", "--out", tmp_path / "run") == 0
    assert search(*flags, "--out", tmp_path / "whole") == 0
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES


def test_resuming_a_finished_run_changes_nothing(whole):
    before = results(whole)
    assert search("--resume", "--out", whole) == 0
    assert results(whole) == before


@pytest.mark.parametrize(
    ("flag", "value", "name"),
    [("--batch", 4, "--batch 8"), ("--seed", 3, "--seed 0"), ("--data", "svhn", "--data digits")],
)
def test_resume_refuses_other_settings(whole, capsys, flag, value, name):
    before = results(whole)
    assert search("--resume", "--out", whole, flag, value) == 2
    assert f"was started with {name}, not {value}" in capsys.readouterr().err
    assert results(whole) == before


def test_resume_refuses_other_images(tmp_path, capsys, monkeypatch):
    root = write_classes(tmp_path / "data")
    with monkeypatch.context() as patch:
        at_step(patch, 2, die)
        with pytest.raises(Killed):
            search(*FOLDER, "--root", root, "--out", tmp_path / "run")
    for image in (root / "a").iterdir():
        Image.new("RGB", (9, 9), (1, 2, 3)).save(image)
    assert search("--resume", "--out", tmp_path / "run") == 2
    assert "other images" in capsys.readouterr().err


def test_two_processes_do_not_share_a_run(whole, capsys):
    with runs.RunFolder(whole):
        assert search("--resume", "--out", whole) == 2
    assert "another process is working on" in capsys.readouterr().err


# --- bad input: one sentence, exit code 2, nothing left behind ------------------------------------

FOLDER = [*TINY, *"--data folder --model small --image-size 16".split()]


def write_classes(root: Path, count: int = 40, classes: str = "ab") -> Path:
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (20, 18), (number, ord(name), 0)).save(root / name / f"{number}.png")
    return root


def test_missing_root(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DDAS_DATA", raising=False)
    for name in ("cifar10", "cifar100", "svhn", "imagenet"):
        assert f"no folder data/{name}; it must hold" in refused(capsys, tmp_path, "--data", name)
    assert "no folder nowhere" in refused(capsys, tmp_path, *FOLDER, "--root", "nowhere")
    assert "--data folder needs --root" in refused(capsys, tmp_path, *FOLDER)


def test_wrong_layout(capsys, tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("cifar10", "imagenet", "folder"):
        told = refused(capsys, tmp_path, "--data", name, "--root", tmp_path / "data")
        assert "ROOT/CLASS/IMAGE.jpg" in told
    assert "train_32x32.mat" in refused(
        capsys, tmp_path, "--data", "svhn", "--root", tmp_path / "data"
    )


@pytest.mark.parametrize("damage", ["cut", "empty"])
def test_unreadable_image(capsys, tmp_path, damage):
    root = write_classes(tmp_path / "data", count=40)
    for image in (root / "b").iterdir():  # all: whichever are drawn
        image.write_bytes(image.read_bytes()[:50] if damage == "cut" else b"")
    assert "cannot read the image" in refused(capsys, tmp_path, *FOLDER, "--root", root)


def test_class_with_too_few_images(capsys, tmp_path):
    root = write_classes(tmp_path / "data", count=200)
    for image in sorted((root / "b").iterdir())[1:]:
        image.unlink()
    told = refused(capsys, tmp_path, *FOLDER, "--root", root)
    assert "class 'b' has too few images, 1" in told


def test_too_few_images_and_classes(capsys, tmp_path):
    root = write_classes(tmp_path / "data", count=10)
    assert "32 + 40 images are wanted, but there are only 20" in refused(
        capsys, tmp_path, *FOLDER, "--root", root
    )
    assert "5 classes are wanted" in refused(
        capsys, tmp_path, *FOLDER, "--root", root, "--classes", 5
    )


def test_validation_folder_with_other_classes(capsys, tmp_path):
    root = write_classes(tmp_path / "data")
    other = write_classes(tmp_path / "other", classes="ac")
    told = refused(capsys, tmp_path, *FOLDER, "--root", root, "--val-root", other)
    assert "same classes" in told


def test_pickle_that_wants_to_run_code(capsys, tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "batches.meta"):
        (root / name).write_bytes(pickle.dumps(print))
    told = refused(capsys, tmp_path, "--data", "cifar10", "--root", root)
    assert "data_batch_1 is not a pickle of plain NumPy data" in told


SPACES = {
    "{": "is not JSON",
    '{"ops": ["Twist"]}': "unknown op 'Twist'",
    '{"ops": ["Rotate"]}': "Rotate has a magnitude",
    '{"ops": ["Rotate"], "levels": [99]}': "level from 0 to 30",
    "[]": "a search space is written",
    '{"candidates": []}': "at least one candidate",
}


@pytest.mark.parametrize(("content", "reason"), SPACES.items())
def test_bad_spaces(capsys, tmp_path, content, reason):
    (tmp_path / "space.json").write_text(content)
    assert reason in refused(capsys, tmp_path, *TINY, "--space", tmp_path / "space.json")


def test_a_space_has_its_own_levels(capsys, tmp_path):
    (tmp_path / "space.json").write_text('{"ops": ["Invert"]}')
    told = refused(capsys, tmp_path, *TINY, "--space", tmp_path / "space.json", "--levels", 3)
    assert "--levels is for the presets" in told


NUMBERS = {
    "--batch 33": "--batch 33 is larger than the set, --train-images 32",
    "--val-batch 41": "--val-batch 41 is larger than the set, --val-images 40",
    "--epochs 0": "--epochs must be above 0",
    "--policies 0": "--policies must be above 0",
    "--depth 0": "--depth must be above 0",
    "--lr -1": "--lr must be above 0",
    "--lr nan": "--lr must be above 0",
    "--apply-probability 1": "--apply-probability lies between 0 and 1",
    "--adam-betas 0.5 1": "--adam-betas",
    "--seed -1": "--seed cannot be negative",
    "--threads 0": "--threads must be above 0",
    "--levels 31": "level from 0 to 30",
    "--model resnet-9000": "no ResNet of depth 9000",
    "--model what": "unknown model 'what'",
    "--train-images 2000": "2000 + 40 images are wanted, but there are only 1797",
    "--root somewhere": "scikit-learn",
    "--space missing.json": "missing.json",
}


@pytest.mark.parametrize(("flags", "reason"), NUMBERS.items())
def test_numbers_and_names_that_cannot_be(capsys, tmp_path, flags, reason):
    assert reason in refused(capsys, tmp_path, *TINY, *flags.split())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu(capsys, tmp_path):
    assert "no CUDA GPU" in refused(capsys, tmp_path, *TINY, "--device", "cuda")


@pytest.mark.parametrize("flags", ["--data moon", "--batch many", "--no-such-flag 1"])
def test_flags_that_do_not_exist(capsys, tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    assert search(*flags.split()) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_another_run_is_left_alone(whole, capsys):
    before = results(whole)
    assert search(*TINY, "--seed", 1, "--out", whole) == 2
    assert "already holds a run: add --resume" in capsys.readouterr().err
    assert results(whole) == before


def test_a_folder_that_holds_other_things_is_left_alone(capsys, tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    assert search(*TINY, "--out", tmp_path) == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert search(*TINY, "--out", tmp_path / "letter.txt") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_resume_without_a_run(capsys, tmp_path):
    assert search("--resume") == 2
    assert "--resume needs --out" in capsys.readouterr().err
    assert search("--resume", "--out", tmp_path / "none") == 2
    assert "holds no run to resume" in capsys.readouterr().err


def test_damaged_runs_are_refused(whole, capsys, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        at_step(patch, 6, die)
        with pytest.raises(Killed):
            search(*TINY, "--out", tmp_path)
    config, checkpoint = tmp_path / "config.json", tmp_path / "checkpoint.pt"
    good, state = config.read_bytes(), checkpoint.read_bytes()
    for bad in (b"{", b"[]", b'{"version": 9, "command": "search", "settings": {}}'):
        config.write_bytes(bad)
        assert search("--resume", "--out", tmp_path) == 2
        assert "is not the configuration of a search" in capsys.readouterr().err
    config.write_bytes(good)
    for bad in (state[: len(state) // 2], b"", pickle.dumps(print, 2)):
        checkpoint.write_bytes(bad)
        assert search("--resume", "--out", tmp_path) == 2
        assert "is not a checkpoint of this program" in capsys.readouterr().err
    torch.save({"version": 99}, checkpoint)
    assert search("--resume", "--out", tmp_path) == 2
    assert "is of version 99" in capsys.readouterr().err
    checkpoint.write_bytes(state)
    lines = (tmp_path / "metrics.jsonl").read_bytes()
    (tmp_path / "metrics.jsonl").write_bytes(lines[:100])
    assert search("--resume", "--out", tmp_path) == 2
    assert "steps were done" in capsys.readouterr().err
    (tmp_path / "metrics.jsonl").write_bytes(lines)
    assert search("--resume", "--out", tmp_path) == 0
    assert results(tmp_path) == results(whole)


def test_a_disk_that_is_full_from_the_start(capsys, tmp_path, monkeypatch):
    full_disk(monkeypatch, after=0)
    assert search(*TINY, "--out", tmp_path / "run") == 2
    assert "the disk is full" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_disk_that_fills_up_keeps_the_last_checkpoint(whole, capsys, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        full_disk(patch, after=6)
        assert search(*TINY, "--out", tmp_path / "run", "--checkpoint-seconds", 0.0001) == 2
    assert "the disk is full" in capsys.readouterr().err
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]
    assert search("--resume", "--out", tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


def test_a_loss_that_is_no_number_keeps_the_last_checkpoint(capsys, tmp_path):
    flags = ("--out", tmp_path, "--lr", "1e30", "--checkpoint-seconds", 0.0001)
    assert search(*TINY, *flags) == 2
    assert "no longer a finite number" in capsys.readouterr().err
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["search"]
    assert state["parameters"]["alpha_o"].isfinite().all()
    assert all(weight.isfinite().all() for weight in state["model"].values())
    assert not (tmp_path / "policy.json").exists()
