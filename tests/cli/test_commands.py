"""What the search and the training have in common: files, stopping, resuming, bad input."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands import Command, Killed, die, full_disk, metrics
from PIL import Image
from search_commands import search
from train_commands import train

from ddas_gpu.runs.run_folder import RunFolder, sealed, unsealed

EXTRAS = {"search": (), "train": ("--moving-average", 0.9, "--label-smoothing", 0.1)}


@pytest.fixture(scope="module", params=[search, train], ids=lambda command: command.name)
def command(request) -> Command:
    return request.param


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory) -> Path:
    """The folder of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert command(*command.tiny, "--out", folder) == 0
    return folder


@pytest.fixture(scope="module")
def whole_with_extras(command, whole, tmp_path_factory) -> Path:
    """The same with the flags that add to the state of a run."""
    if not EXTRAS[command.name]:
        return whole
    folder = tmp_path_factory.mktemp("extras") / "run"
    assert command(*command.tiny, *EXTRAS[command.name], "--out", folder) == 0
    return folder


# --- what the user gets ---------------------------------------------------------------------------


def test_the_run_folder(command, whole):
    assert {path.name for path in whole.iterdir()} == command.files
    config = json.loads((whole / "config.json").read_text())
    assert (config["version"], config["command"]) == (2, command.name)
    assert config["settings"]["data"] == "digits"
    assert config["settings"]["batch_size"] == 8
    assert set(config["versions"]) == {"python", "torch", "numpy", "pillow", "ddas_gpu"}


def test_deterministic_is_recorded_and_shown(command, whole, tmp_path):
    out = tmp_path / "run"
    assert command(*command.tiny, "--deterministic", "--out", out) == 0
    recorded = [json.loads((f / "config.json").read_text())["settings"] for f in (whole, out)]
    assert [settings["deterministic"] for settings in recorded] == [False, True]
    for folder, shown in ((whole, "no"), (out, "yes")):
        assert f"deterministic</dt><dd>{shown}</dd>" in (folder / "report.html").read_text()


def test_the_end_says_where_things_are(command, tmp_path, capsys):
    assert command(*command.tiny, "--epochs", 1, "--out", tmp_path / "run") == 0
    told = capsys.readouterr()
    assert str(tmp_path / "run" / command.result) in told.out
    assert str(tmp_path / "run" / "report.html") in told.out
    assert {"search": "most probable", "train": "after epoch 1, the last"}[command.name] in told.out
    assert "epoch 1/1, step 4/4: loss" in told.err


def test_folders_without_a_name_never_collide(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert command(*command.tiny, "--epochs", 1) == 0
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"digits-1", "digits-2"}


def test_the_same_seed_gives_the_same_bytes(command, whole, tmp_path):
    assert command(*command.tiny, "--out", tmp_path / "again") == 0
    assert command.results(tmp_path / "again") == command.results(whole)
    assert command(*command.tiny, "--seed", 1, "--out", tmp_path / "other") == 0
    other = command.results(tmp_path / "other")
    assert other[command.result] != command.results(whole)[command.result]


def test_help_needs_no_torch(command):
    """torch takes seconds to import; nobody should wait that long for --help."""
    code = (
        "import sys\n"
        f"from ddas_gpu.{command.name}.__main__ import main\n"
        "try:\n    main(['--data', 'cifar10', '--help'])\n"
        "finally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"
    preset = {"search": "(default: wrn-40-2)", "train": "(default: wrn-28-10)"}
    text = " ".join(done.stdout.replace("│", "").split())
    assert preset[command.name] in text  # the defaults shown are the preset's
    assert done.returncode == 0


# --- stopping and going on ------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 5, 7])
@pytest.mark.parametrize(
    "often",
    [
        pytest.param(["--checkpoint-seconds", 0.0001], id="each step"),
        pytest.param(["--checkpoint-seconds", 1000], id="each epoch"),
        pytest.param(["--checkpoint-seconds", 1000, "--no-checkpoint-epochs"], id="at the start"),
    ],
)
def test_a_run_cut_anywhere_resumes_to_the_same_bytes(
    command, whole_with_extras, tmp_path, monkeypatch, cut, often
):
    flags = ("--out", tmp_path / "run", *often)
    with monkeypatch.context() as patch:
        command.at_step(patch, cut, die)
        with pytest.raises(Killed):
            command(*command.tiny, *EXTRAS[command.name], *flags)
    assert not (tmp_path / "run" / "report.html").exists()
    assert command("--resume", "--out", tmp_path / "run") == 0
    assert command.results(tmp_path / "run") == command.results(whole_with_extras)


def test_a_run_cut_again_and_again(command, whole, tmp_path, monkeypatch):
    for cut in (2, 5, 6):
        with monkeypatch.context() as patch:
            command.at_step(patch, cut, die)
            begin = command.tiny if cut == 2 else ["--resume"]
            with pytest.raises(Killed):
                command(*begin, "--out", tmp_path / "run")
    assert command("--resume", "--out", tmp_path / "run") == 0
    assert command.results(tmp_path / "run") == command.results(whole)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_finish_the_step_and_say_how_to_go_on(
    command, whole, tmp_path, monkeypatch, capsys, number, code
):
    with monkeypatch.context() as patch:
        command.at_step(patch, 5, lambda: os.kill(os.getpid(), number))
        assert command(*command.tiny, "--out", tmp_path / "run") == code
    assert f"{command.program} --resume --out {tmp_path / 'run'}" in capsys.readouterr().err
    checkpoint = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert checkpoint[command.noun]["steps"] == 6
    before = signal.getsignal(number)
    assert command("--resume", "--out", tmp_path / "run") == 0
    assert signal.getsignal(number) is before
    assert command.results(tmp_path / "run") == command.results(whole)


def test_ctrl_c_twice_stops_at_once(command, tmp_path, monkeypatch, capsys):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    command.at_step(monkeypatch, 5, twice)
    assert command(*command.tiny, "--out", tmp_path / "run") == 130
    again = f"stopped at once; go on with: {command.program} --resume --out {tmp_path / 'run'}"
    assert capsys.readouterr().err.splitlines()[-1] == again
    checkpoint = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert checkpoint[command.noun]["steps"] == 4


def sent(number: int) -> Callable[..., None]:
    """A function that gets a signal when it is called."""
    return lambda *_, **__: os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", ["report", "resume"])
def test_signals_outside_the_steps_say_what_is_there(
    command, whole, tmp_path, monkeypatch, capsys, place, number
):
    flags = (*command.tiny, "--out", tmp_path / "run")
    with monkeypatch.context() as patch:
        if place == "report":
            patch.setattr("ddas_gpu.report.writing.write_report", sent(number))
            assert command(*flags) == 128 + number
        else:
            command.at_step(patch, 5, die)
            with pytest.raises(Killed):
                command(*flags)
            patch.setattr("ddas_gpu.distributed.agreement.require_same_start", sent(number))
            assert command("--resume", "--out", tmp_path / "run") == 128 + number
    again = f"stopped at once; go on with: {command.program} --resume --out {tmp_path / 'run'}"
    assert capsys.readouterr().err.splitlines()[-1] == again
    assert command("--resume", "--out", tmp_path / "run") == 0
    assert command.results(tmp_path / "run") == command.results(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_before_there_is_a_folder(command, tmp_path, monkeypatch, capsys, number):
    monkeypatch.setattr("ddas_gpu.distributed.agreement.require_same_start", sent(number))
    assert command(*command.tiny, "--out", tmp_path / "run") == 128 + number
    assert capsys.readouterr().err.endswith("stopped before it began: nothing was changed\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 143)]
)
def test_a_real_process_killed_resumes_to_the_same_bytes(command, tmp_path, number, code):
    flags = (*command.tiny, "--epochs", 12, "--seed", 7)
    process = command.start(*flags, "--out", tmp_path / "run", "--checkpoint-seconds", 0.05)
    for line in process.stderr:
        if line.startswith("epoch 3/12, step 12/48"):
            break
    process.send_signal(number)
    _, told = process.communicate()
    assert process.returncode == code
    assert ("--resume" in told) == (number == signal.SIGTERM)
    assert not (tmp_path / "run" / "report.html").exists()
    assert command("--resume", "--out", tmp_path / "run") == 0
    assert command(*flags, "--out", tmp_path / "whole") == 0
    assert command.results(tmp_path / "run") == command.results(tmp_path / "whole")
    assert {path.name for path in (tmp_path / "run").iterdir()} == command.files


def test_resuming_a_finished_run_changes_nothing(command, whole):
    before = command.results(whole)
    assert command("--resume", "--out", whole) == 0
    assert command.results(whole) == before


@pytest.mark.parametrize(
    ("flag", "value", "before"),
    [
        ("--batch-size", 4, "--batch-size 8"),
        ("--batch", 4, "--batch-size 8"),
        ("--seed", 3, "--seed 0"),
        ("--data", "svhn", "--data digits"),
    ],
)
def test_resume_refuses_other_settings(command, whole, capsys, flag, value, before):
    results = command.results(whole)
    assert command("--resume", "--out", whole, flag, value) == 2
    assert f"was started with {before}, not {value}" in capsys.readouterr().err
    assert command.results(whole) == results


def test_resume_refuses_other_images(command, tmp_path, capsys, monkeypatch):
    root = command.write_images(tmp_path / "data")
    with monkeypatch.context() as patch:
        command.at_step(patch, 2, die)
        with pytest.raises(Killed):
            command(*command.folder, "--root", root, "--out", tmp_path / "run")
    for image in root.rglob("a/*.png"):
        Image.new("RGB", (9, 9), (1, 2, 3)).save(image)
        image.rename(image.with_name(f"other-{image.name}"))
    assert command("--resume", "--out", tmp_path / "run") == 2
    assert "other images" in capsys.readouterr().err


def test_images_replaced_in_mid_run_are_noticed(tmp_path, capsys, monkeypatch):
    root = train.write_images(tmp_path / "data")

    def replace() -> None:
        for image in root.rglob("*.png"):
            Image.new("RGB", (90, 90), (1, 2, 3)).save(image)

    train.at_step(monkeypatch, 4, replace)
    assert train(*train.folder, "--root", root, "--out", tmp_path / "run") == 0
    assert "the images were changed during the run" in capsys.readouterr().err


MODEL = """
from pathlib import Path
Path({mark!r}).touch()
from ddas_gpu.models.small import SmallResNet as build
"""


def test_resume_imports_no_module_that_only_the_folder_names(
    command, tmp_path, monkeypatch, capsys
):
    """The folder may be somebody else's."""
    mark = tmp_path / "imported"
    (tmp_path / "strangers_model.py").write_text(MODEL.format(mark=str(mark)))
    monkeypatch.syspath_prepend(tmp_path)
    flags = ("--model", "strangers_model:build")
    with monkeypatch.context() as patch:
        command.at_step(patch, 2, lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert command(*command.tiny, *flags, "--out", tmp_path / "run") == 143
    again = f"--resume --out {tmp_path / 'run'} --model strangers_model:build"
    assert again in capsys.readouterr().err
    mark.unlink()
    sys.modules.pop("strangers_model")
    told = refused_resume(command, tmp_path / "run", capsys)
    assert "imports its model: if you trust it, add --model strangers_model:build" in told
    assert not mark.exists()
    assert command("--resume", "--out", tmp_path / "run", *flags) == 0
    sys.modules.pop("strangers_model")


def test_two_processes_do_not_share_a_run(command, whole, capsys):
    with RunFolder(whole):
        assert command("--resume", "--out", whole) == 2
    assert "another process is working on" in capsys.readouterr().err


# --- bad input: one sentence, exit code 2, nothing left behind ------------------------------------

NUMBERS = {
    "--epochs 0": "--epochs must be above 0",
    "--lr -1": "--lr must be above 0",
    "--lr nan": "--lr must be a finite number, not nan",
    "--scale 2": "--scale is a share above 0 and up to 1",
    "--scale nan": "--scale is a share above 0 and up to 1",
    "--seed -1": "--seed cannot be negative",
    "--threads 0": "--threads must be above 0",
    "--workers 0": "--workers must be above 0",
    "--timeout -1": "--timeout must be above 0",
    "--timeout nan": "--timeout must be a finite number",
    "--checkpoint-seconds 0": "--checkpoint-seconds must be above 0",
    "--momentum -1": "--momentum lies in [0, 1)",
    "--lr-steps 3 -1": "--lr-steps cannot be negative",
    "--model resnet-9000": "no ResNet of depth 9000",
    "--root somewhere": "the digits are part of ddas_gpu",
}


@pytest.mark.parametrize(("flags", "reason"), NUMBERS.items())
def test_numbers_and_names_that_cannot_be(command, capsys, tmp_path, flags, reason):
    assert reason in command.refused(capsys, tmp_path, *command.tiny, *flags.split())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu(command, capsys, tmp_path):
    told = command.refused(capsys, tmp_path, *command.tiny, "--device", "cuda")
    assert "no CUDA GPU" in told


@pytest.mark.parametrize("flags", ["--data moon", "--batch-size many", "--no-such-flag 1"])
def test_flags_that_do_not_exist(command, capsys, tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    assert command(*flags.split()) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_missing_roots(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DDAS_DATA", raising=False)
    for name in ("cifar10", "cifar100", "svhn", "imagenet", "coco"):
        told = command.refused(capsys, tmp_path, "--data", name)
        assert f"no folder data/{name}; it must hold" in told
    assert "--data folder needs --root" in command.refused(capsys, tmp_path, "--data", "folder")


def test_a_folder_that_holds_another_run_is_left_alone(command, whole, capsys):
    before = command.results(whole)
    assert command(*command.tiny, "--seed", 1, "--out", whole) == 2
    assert "already holds a run: add --resume" in capsys.readouterr().err
    assert command.results(whole) == before


def test_a_folder_that_holds_other_things_is_left_alone(command, capsys, tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    assert command(*command.tiny, "--out", tmp_path) == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert command(*command.tiny, "--out", tmp_path / "letter.txt") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_resume_without_a_run(command, capsys, tmp_path):
    assert command("--resume") == 2
    assert "--resume needs --out" in capsys.readouterr().err
    assert command("--resume", "--out", tmp_path / "none") == 2
    assert "holds no run to resume" in capsys.readouterr().err


@pytest.fixture
def cut_run(command, tmp_path, monkeypatch) -> Path:
    """The folder of a run that was killed before its end."""
    with monkeypatch.context() as patch:
        command.at_step(patch, 6, die)
        with pytest.raises(Killed):
            command(*command.tiny, "--out", tmp_path / "cut")
    return tmp_path / "cut"


def refused_resume(command: Command, folder: Path, capsys) -> str:
    capsys.readouterr()
    assert command("--resume", "--out", folder) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    return told.splitlines()[-1]


def test_damaged_configurations_are_refused(command, whole, cut_run, capsys):
    config = cut_run / "config.json"
    good = json.loads(config.read_bytes())
    other = {"search": "train", "train": "search"}[command.name]
    bad = [{}, [], good | {"version": 9}, good | {"command": other}, good | {"settings": 1}]
    bad += [good | {"settings": {"no_such_setting": 1}}, good | {"settings": None}]
    for content in ["{", *map(json.dumps, bad)]:
        config.write_text(content)
        told = refused_resume(command, cut_run, capsys)
        assert f"is not the configuration of a {command.noun}" in told
    config.write_text(json.dumps(good))
    assert command("--resume", "--out", cut_run) == 0
    assert command.results(cut_run) == command.results(whole)


def test_runs_of_version_1_are_not_resumed(command, cut_run, capsys):
    config = cut_run / "config.json"
    config.write_text(json.dumps(json.loads(config.read_bytes()) | {"version": 1}))
    before = {path.name: path.read_bytes() for path in cut_run.iterdir()}
    told = refused_resume(command, cut_run, capsys)
    assert "was made by ddas_gpu 0.1" in told and "policy.json can still be used" in told
    assert {path.name: path.read_bytes() for path in cut_run.iterdir()} == before


def test_damaged_checkpoints_and_metrics_are_refused(command, whole, cut_run, capsys):
    checkpoint, lines = cut_run / "checkpoint.pt", cut_run / "metrics.jsonl"
    state, log = checkpoint.read_bytes(), lines.read_bytes()
    for bad in (state[: len(state) // 2], b"", pickle.dumps(print, 2)):
        checkpoint.write_bytes(bad)
        told = refused_resume(command, cut_run, capsys)
        assert "is not a checkpoint of this program" in told
    checkpoint.write_bytes(sealed({"version": 99}))
    assert "is of version 99" in refused_resume(command, cut_run, capsys)
    checkpoint.write_bytes(sealed({"other": {}}))
    assert f"is not one of a {command.noun}" in refused_resume(command, cut_run, capsys)
    content = unsealed(state, checkpoint)
    own = content[command.noun]
    others = [{}, [], 1, own | {"model": {}}, own | {"steps": 2.5}, own | {"steps": 10**6}]
    # A training without a moving average has None for it; 0.2.0 had no "last" and no "precision".
    needed = own.keys() - {"average", "last", "precision"}
    others += [{k: own[k] for k in own if k != left_out} for left_out in needed]
    for other in others:
        checkpoint.write_bytes(sealed(content | {command.noun: other}))
        told = refused_resume(command, cut_run, capsys)
        assert f"is not one of this {command.noun}: " in told
    checkpoint.write_bytes(state)
    lines.write_bytes(b"")
    assert "has 0 lines, but the checkpoint comes after" in refused_resume(command, cut_run, capsys)
    lines.write_bytes(log)
    assert command("--resume", "--out", cut_run) == 0
    assert command.results(cut_run) == command.results(whole)


def test_a_disk_that_is_full_from_the_start(command, capsys, tmp_path, monkeypatch):
    full_disk(monkeypatch, after=0)
    assert command(*command.tiny, "--out", tmp_path / "run") == 2
    assert "the disk is full" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("after", [5, 6, 7])
def test_a_disk_that_fills_up_keeps_the_last_checkpoint(
    command, whole, capsys, tmp_path, monkeypatch, after
):
    with monkeypatch.context() as patch:
        full_disk(patch, after)
        assert command(*command.tiny, "--out", tmp_path / "run") == 2
    assert "the disk is full" in capsys.readouterr().err
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]
    assert command("--resume", "--out", tmp_path / "run") == 0
    assert command.results(tmp_path / "run") == command.results(whole)


def test_a_loss_that_is_no_number_keeps_the_last_checkpoint(command, capsys, tmp_path):
    flags = ("--out", tmp_path, "--lr", "1e30", "--checkpoint-seconds", 0.0001)
    assert command(*command.tiny, *flags) == 2
    assert "no longer a finite number" in capsys.readouterr().err
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)[command.noun]
    assert all(weight.isfinite().all() for weight in state["model"].values())
    if command is search:
        assert state["parameters"]["alpha_o"].isfinite().all()
    assert not (tmp_path / "report.html").exists()
    assert len(metrics(tmp_path)) < 8
