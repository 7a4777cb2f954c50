"""`ddas doctor` runs to its end, writes its file, and finds a broken op."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import ddas_gpu
from ddas_gpu.__main__ import main
from ddas_gpu.doctor import printing
from ddas_gpu.doctor.checks import FAILED, MARKS, all_checks
from ddas_gpu.ops import backends

CHECKS = all_checks()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess, Path]:
    """The command as users run it, in a process of its own."""
    file = tmp_path_factory.mktemp("doctor") / "doctor.json"
    temporary = tmp_path_factory.mktemp("temporary")
    command = [sys.executable, "-m", "ddas_gpu", "doctor", "--json", str(file)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert not list(temporary.rglob("*.jpg")), "files of the checks are left"
    return done, file


def test_it_runs_to_its_end(finished) -> None:
    done, _ = finished
    assert done.returncode == 0, done.stdout + done.stderr
    rows = done.stdout.splitlines()[: len(CHECKS)]
    for line, one in zip(rows, CHECKS.values(), strict=True):
        assert line[0] in MARKS.values() and line[2:].startswith(one.title)
        assert len(line.split(one.title, 1)[1].strip()) > 2, f"no words about {one.title}"
    assert "✗" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_the_file_has_everything(finished) -> None:
    _, file = finished
    content = json.loads(file.read_text("utf-8"))
    assert content["format"] == printing.FORMAT and content["version"] == printing.VERSION
    assert content["ddas_gpu"] == ddas_gpu.__version__ and content["passed"] is True
    assert [one["name"] for one in content["checks"]] == list(CHECKS)
    for one in content["checks"]:
        assert set(one) == {"name", "title", "status", "text", "seconds", "facts"}
        assert one["status"] in MARKS and isinstance(one["text"], str) and one["text"]
        assert one["seconds"] >= 0 and isinstance(one["facts"], dict)
    facts = {one["name"]: one["facts"] for one in content["checks"]}
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["bank_speed"]["images per second"] > 0
    assert list(file.parent.iterdir()) == [file]  # no temporary file is left


def test_wrong_flags(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    assert main(["doctor", "--json", str(tmp_path / "nowhere" / "file.json")]) == 2
    assert main(["doctor", "--json", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("cannot be written") == 2
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--jsn", "x"])
    assert end.value.code == 2


def test_a_broken_op_ends_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    run_kernels, images = backends.run, []

    def sabotaged(pictures, chains, source, target) -> None:
        run_kernels(pictures, chains, source, target)
        last = pictures.array[-1]
        size = 3 * int(last["height"]) * int(last["width"])
        memory = np.ctypeslib.as_array(
            (np.ctypeslib.ctypes.c_uint8 * size).from_address(target + int(last["target"]))
        )
        memory[size // 2] ^= 1  # one bit of one pixel
        images.append(size)

    monkeypatch.setattr(backends, "run", sabotaged)
    file = tmp_path / "doctor.json"
    assert main(["doctor", "--json", str(file)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✗ op")]
    assert "Identity None differs from Pillow in 1 of " in line and images
    content = json.loads(file.read_text("utf-8"))
    assert content["passed"] is False
    assert [one["name"] for one in content["checks"] if one["status"] == FAILED] == ["bank_on_cpu"]
