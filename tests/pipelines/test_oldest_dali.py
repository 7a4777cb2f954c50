"""The oldest DALI that setup.py allows passes the tests of the pipelines, as the newest does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_oldest_dali_passes_the_tests_of_the_pipelines(tmp_path):
    (oldest,) = re.findall(r"nvidia-dali-cuda130>=([\d.]+)", (ROOT / "setup.py").read_text())
    constraints = tmp_path / "constraints.txt"
    kept = (ROOT / "constraints.txt").read_text().splitlines()
    constraints.write_text("\n".join(line for line in kept if not line.startswith("nvidia-dali")))
    wanted = [f"nvidia-dali-cuda130=={oldest}.0", "-c", constraints]
    pip = [sys.executable, "-m", "pip", "install", "--target", tmp_path / "packages"]
    subprocess.run([*pip, *wanted], check=True)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "packages")}
    version = "import nvidia.dali; print(nvidia.dali.__version__)"
    options = {"cwd": ROOT, "env": environment, "text": True, "capture_output": True}
    found = subprocess.run([sys.executable, "-c", version], check=True, **options).stdout
    assert found.strip() == f"{oldest}.0"
    tests = [sys.executable, "-m", "pytest", "-q", "tests/pipelines"]
    run = subprocess.run(tests, check=False, **options)
    assert run.returncode == 0, run.stdout[-3000:]
