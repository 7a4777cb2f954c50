"""Every example in a docstring of the package runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

import ddas_gpu
from ddas_gpu import PolicySchedule, SearchSpace

PACKAGE = Path(ddas_gpu.__file__).parent
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
OPTIONAL = {"albumentations", "cupy", "lightning", "nvidia", "transformers"}


def modules_with_examples() -> list[str]:
    files = sorted(PACKAGE.rglob("*.py"))
    found = [file for file in files if ">>> " in file.read_text("utf-8")]
    names = [".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in found]
    return [name.removesuffix(".__init__") for name in names]


@pytest.fixture
def policy_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current folder with a policy.json, which examples may load."""
    monkeypatch.chdir(tmp_path)
    space = SearchSpace.preset("digits")
    rows = np.full((2, len(space)), 1 / len(space))
    PolicySchedule(space, np.array([0.2, 0.4]), rows).save("policy.json")


@pytest.mark.usefixtures("one_thread", "policy_folder")
@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings_run(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in OPTIONAL:
            pytest.skip(f"{name} needs {error.name}")
        raise
    names = {"np": np, "torch": torch}
    result = doctest.testmod(module, extraglobs=names, optionflags=FLAGS)
    assert result.attempted > 0 and result.failed == 0


def test_examples_are_found() -> None:
    assert "ddas_gpu.space" in modules_with_examples()
