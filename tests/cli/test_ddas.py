"""`ddas`: one name for all commands."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ddas_gpu
from ddas_gpu.__main__ import COMMANDS, main


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_all_commands_are_listed(argv, capsys):
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, (_, words) in COMMANDS.items():
        assert f"  {name:<10}{words}" in lines


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ddas_gpu {ddas_gpu.__version__}\n"


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [("serch", "did you mean search?"), ("trian", "did you mean train?"), ("xyz", "there are:")],
)
def test_an_unknown_command_is_answered_with_the_nearest(wrong, hint, capsys):
    assert main([wrong, "--data", "digits"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"ddas: unknown command {wrong!r}; {hint}")
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_answers(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert not end.value.code
    assert COMMANDS[name][0].removesuffix(".__main__") in capsys.readouterr().out


def test_flags_and_the_exit_code_are_passed_on(capsys, tmp_path):
    assert main(["search", "--lr", "-1", "--out", str(tmp_path / "run")]) == 2
    assert "--lr must be above 0" in capsys.readouterr().err
    assert main(["scan", str(tmp_path / "nowhere")]) == 2


def test_help_imports_only_what_it_needs():
    code = (
        "import sys; from ddas_gpu.__main__ import main\n"
        "main(['--help']); assert not {'tyro', 'numpy', 'torch'} & set(sys.modules)\n"
        "try: main(['search', '--help'])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'ddas_gpu.train' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_as_a_module():
    done = subprocess.run([sys.executable, "-m", "ddas_gpu"], capture_output=True, text=True)
    assert done.returncode == 0 and "usage: ddas COMMAND" in done.stdout
