"""setup.py declares what the package imports, and requires nothing else."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import setuptools

ROOT = Path(__file__).resolve().parent.parent
# Packages whose distribution has another name, up to the CUDA version in it.
DISTRIBUTIONS = {"PIL": "pillow", "cupy": "cupy-cuda", "nvidia": "nvidia-dali-cuda"}


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of `setup`."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", found.update)
    runpy.run_path(str(ROOT / "setup.py"))
    return found


def imported() -> set[str]:
    """The distributions that the package imports, also inside functions."""
    names = set()
    for file in (ROOT / "ddas_gpu").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    names -= {"ddas_gpu", *sys.stdlib_module_names}
    return {DISTRIBUTIONS.get(name, name) for name in names}


def names_of(requirements: list[str]) -> set[str]:
    """Distributions without their versions, nor that of CUDA."""
    names = {re.split(r"[<>=!~;\[ ]", requirement)[0] for requirement in requirements}
    return {re.sub(r"(?<=-cuda)\d+x?$", "", name) for name in names}


def test_every_import_is_declared(declared):
    extras = [name for extra in declared["extras_require"].values() for name in extra]
    assert imported() <= names_of([*declared["install_requires"], *extras])


def test_every_requirement_is_imported(declared):
    assert names_of(declared["install_requires"]) <= imported()
