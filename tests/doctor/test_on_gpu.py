"""`ddas doctor` on a GPU, and the list of tests that need one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ddas_gpu.doctor.__main__ import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.gpu
def test_nothing_fails_and_everything_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "doctor.json"
    assert main(["--json", str(file)]) == 0
    checks = json.loads(file.read_text("utf-8"))["checks"]
    unchecked = {one["name"] for one in checks if one["status"] != "ok"}
    # Some containers have no nvidia-smi, or no C++ compiler.
    assert unchecked <= {"driver", "compiler", "cpu_kernels", "bank_on_cpu"}


def test_contributing_lists_the_tests_that_need_a_gpu() -> None:
    section = (
        (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## GPU tests")[1].split("\n## ")[0]
    )
    listed = set(re.findall(r"`(tests/[\w/]+\.py)`", section))
    marked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"mark\.gpu\b", path.read_text("utf-8"))
    }
    assert listed == marked
