"""Packages that cannot share an environment with this torch, each test in a process of its own.

torchvision has no build for every torch; beside another one its import needs a hand
(torchvision_operators.py), and would disturb the packages that look for it. So `make test` installs
it, and what needs it, into a folder of their own, without their requirements.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ddas_gpu import PolicySchedule, SearchSpace

BESIDE = Path(os.environ.get("DDAS_BESIDE") or Path(sys.prefix) / "beside")
ROOT = Path(__file__).resolve().parent.parent
START = """
import torchvision_operators

torchvision_operators.declare()
"""


def needs(name: str) -> pytest.MarkDecorator:
    """Return the mark that skips where a package is missing."""
    return pytest.mark.skipif(
        not (BESIDE / name).is_dir(),
        reason=f"{name} and torchvision are not in {BESIDE}: make test puts them there",
    )


def run(code: str, *arguments: object, **environment: str) -> str:
    """Return the last line that the code prints."""
    folders = (ROOT, Path(__file__).parent, BESIDE)
    result = subprocess.run(
        [sys.executable, "-c", START + code, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


def even_policy(folder: Path, space: SearchSpace) -> Path:
    """Write a policy that always augments, with all candidates of a space."""
    even = np.full((1, len(space)), 1 / len(space))
    PolicySchedule(space, np.ones(1), even).save(folder / "policy.json")
    return folder / "policy.json"
