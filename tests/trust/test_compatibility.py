"""Policies of earlier versions, and machines on which a library is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ddas_gpu import PolicySchedule, SearchSpace, augment

# Written by `PolicySchedule.save` of the first and the last commit of 0.1.0, and of 0.2.0.
POLICIES = sorted((Path(__file__).parent / "policies").glob("*.json"))


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_policies_of_every_version_load(path, tmp_path):
    schedule = PolicySchedule.load(path)
    written = json.loads(path.read_text())
    space = SearchSpace.preset(written["settings"]["data"])
    assert list(schedule.space) == list(space) and schedule.space.depth == space.depth
    assert schedule.p_tp.tolist() == written["p_tp"] == [0.5, 0.125]
    assert schedule.p_o.tolist() == written["p_o"]
    assert dict(schedule.settings) == written["settings"]
    schedule.save(tmp_path / "policy.json")
    assert PolicySchedule.load(tmp_path / "policy.json") == schedule


@pytest.mark.parametrize("path", [path for path in POLICIES if "coco" not in path.name], ids=str)
def test_policies_of_every_version_give_todays_pixels(path):
    images = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), np.uint8)
    old, new = PolicySchedule.load(path), SearchSpace.preset(path.stem.rpartition("-")[2])
    policies = np.random.default_rng(1).integers(0, len(new), (4, new.depth))
    for space in (old.space, new):
        assert (augment(images, policies, space, 5) == augment(images, policies, new, 5)).all()


# A library whose import fails, as where it is not installed, and what is promised then. CuPy:
# tests/ops/test_backends.py.
PROMISES = {
    "nvidia.dali": """
batch = next(iter(ddas_gpu.loader((images, labels), schedule, 4, 1, "cpu")))
assert batch[0].shape == (4, 3, 16, 16)
try:
    ddas_gpu.training_pipeline((images, labels), schedule, 4, 1, "cpu")
except ImportError as error:
    assert "or use ddas_gpu.loader" in str(error), error
else:
    raise AssertionError
""",
    "kornia": """
result = ddas_gpu.augment(images, policies, space, 3)
assert result.shape == images.shape
assert next(iter(ddas_gpu.loader((images, labels), schedule, 4, 1, "cpu")))[0].shape[0] == 4
import search_commands, tempfile
with tempfile.TemporaryDirectory() as folder:
    flags = (*search_commands.TINY, "--epochs", "1", "--out", f"{folder}/run")
    assert search_commands.search(*flags) == 0
""",
}
BEGIN = """
import sys
sys.modules[{missing!r}] = None
import numpy as np
import ddas_gpu
space = ddas_gpu.SearchSpace.preset("cifar")
schedule = ddas_gpu.PolicySchedule(space, np.ones(1), np.full((1, len(space)), 1 / len(space)))
images = np.zeros((8, 16, 16, 3), np.uint8)
labels = np.arange(8)
policies = np.zeros((8, space.depth), int)
"""


@pytest.mark.parametrize("missing", PROMISES)
def test_what_is_promised_without(missing):
    program = BEGIN.format(missing=missing) + PROMISES[missing]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{root}:{root / 'tests'}"},
    )
    assert done.returncode == 0, done.stderr
