"""The files about the project agree with the package."""

from __future__ import annotations

import re
from pathlib import Path

import ddas_gpu

ROOT = Path(__file__).resolve().parent.parent


def test_the_citation_has_the_version_of_the_package():
    found = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert found and found[1] == ddas_gpu.__version__


def test_the_changelog_knows_the_version_of_the_package():
    assert f"## [{ddas_gpu.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_tests_that_contributing_names_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"tests/[\w/]+\.py", text)
    assert named and all((ROOT / name).is_file() for name in named)
