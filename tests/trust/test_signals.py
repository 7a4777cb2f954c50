"""Ctrl-C and SIGTERM at any moment: no traceback, nothing left over, exit code 128 + n."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import write_classes

from ddas_gpu import scan
from ddas_gpu.errors import Stopped, exit_code_of, stoppable
from ddas_gpu.ops import backends
from ddas_gpu.report import __main__ as report

SIGNALS = (signal.SIGINT, signal.SIGTERM)

# Sends itself a signal when a module is first looked for, in the middle of another's import.
PROGRAM = """
import os, runpy, signal, sys
_, module, name, number, *rest = sys.argv
class Finder:
    def find_spec(self, found, path=None, target=None):
        if found == name:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(number))
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
sys.argv = [module, *rest]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(
    ("module", "during", "flags"),
    [
        ("ddas_gpu.search", "tyro", ["--epochs", "1"]),
        ("ddas_gpu.search", "torch.nn", ["--epochs", "1"]),
        ("ddas_gpu.train", "tyro", ["--epochs", "1"]),
        ("ddas_gpu.report", "tyro", ["run"]),
        ("ddas_gpu.export", "tyro", ["run"]),
        ("ddas_gpu.scan", "numpy", ["folder"]),
        ("ddas_gpu.doctor", "ddas_gpu.cli.shell", []),
        ("ddas_gpu", "numpy", ["search", "--epochs", "1"]),
    ],
)
def test_while_importing(tmp_path, module, during, flags, number):
    command = [sys.executable, "-c", PROGRAM, module, during, str(int(number)), *flags]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (-number, "", "")  # 128 + n in a shell
    assert not list(tmp_path.iterdir())


def sent(number: int) -> Callable[..., None]:
    return lambda *_, **__: os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_while_the_kernels_are_compiled(tmp_path, monkeypatch, number):
    """The compiler is ended as well, and its folder removed."""
    compiler = tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\nkill -{int(number)} $PPID\nexec sleep 60\n")
    compiler.chmod(0o700)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("DDAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.raises(Stopped) as stop, stoppable():
        backends.build()
    assert stop.value.number == number
    assert not (tmp_path / "cache").exists()
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("number", SIGNALS)
def test_while_scanning(tmp_path, monkeypatch, capsys, number):
    """The images that are left are not scanned first."""
    calls = []

    def find_problem(path: Path) -> str:
        calls.append(path)
        time.sleep(0.005)
        return "bad"

    write_classes(tmp_path, count=200)
    monkeypatch.setattr("ddas_gpu.data.scanning.find_problem", find_problem)
    monkeypatch.setattr("ddas_gpu.data.scanning.BadImage", sent(number))
    assert scan.main([str(tmp_path), "--threads", "1"]) == 128 + number
    assert capsys.readouterr().err.endswith("stopped\n")
    assert len(calls) < 400


@pytest.mark.parametrize("number", SIGNALS)
def test_while_reporting(monkeypatch, capsys, number):
    monkeypatch.setattr(report, "write_reports", sent(number))
    assert report.main(["run"]) == 128 + number
    assert capsys.readouterr().err == "stopped\n"


def test_the_handlers_are_set_back():
    before = [signal.getsignal(number) for number in SIGNALS]
    assert exit_code_of("program", lambda: 3) == 3
    with pytest.raises(Stopped), stoppable():
        os.kill(os.getpid(), signal.SIGTERM)
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_an_ignored_signal_stays_ignored(monkeypatch):
    """As under nohup, and in the background of a shell script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stoppable():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
