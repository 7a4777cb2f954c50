"""Messages that nobody can read any more do not end a run, and never go into its files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddas_gpu.errors import sentence

# Prints from Python and, as libraries do, straight to the descriptor.
PROGRAM = """
import os, sys
from ddas_gpu.errors import exit_code_of
def work():
    with open(sys.argv[1], "w") as file:
        for step in range(2000):
            print("step", step, file=sys.stderr, flush=True)
            if step % 100 == 0:
                try:
                    os.write(2, b"a library's warning")
                except OSError:
                    pass
            print(step, file=file)
    return 7
sys.exit(exit_code_of("program", work))
"""


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full", "2>&1 >/dev/null | head -n 1", ">&-"])
def test_a_run_goes_on_without_a_reader(tmp_path, stderr):
    file = tmp_path / "metrics"
    command = f'set -o pipefail; "$0" -c "$1" "$2" {stderr}'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, PROGRAM, str(file)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 7, done
    assert file.read_text().split() == list(map(str, range(2000)))


def test_a_name_that_is_not_utf_8():
    with pytest.raises(UnicodeEncodeError) as caught:
        "out/\udcff".encode()
    assert sentence(caught.value) == r"a name that is not UTF-8 cannot be stored: … out/\udcff"
