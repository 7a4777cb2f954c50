"""The page ends with code and commands that run."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from run_folders import Page, write_run

import ddas_gpu
from ddas_gpu.compare.__main__ import parse
from ddas_gpu.report import next_steps
from ddas_gpu.report.page import report_page
from ddas_gpu.report.run import load_run
from ddas_gpu.space import SearchSpace

BOXES = SearchSpace.preset("coco")


def snippet(text: str, folder: Path) -> str:
    """Return a way to use the policy of a run, over 2 epochs instead of 90."""
    return next_steps.in_python(load_run(folder), text).replace("90", "2")


@pytest.fixture
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (32, 16, 16, 3), dtype=np.uint8)


def test_the_section_is_the_last_and_names_all(tmp_path: Path):
    folder = write_run(tmp_path / "it's my run")
    words = Page(report_page(load_run(folder))).words()
    end = words[words.index("What to do next") :]
    for name in ("ddas_gpu.loader(", "PolicyTransform(", "BatchPolicy(", "ddas export"):
        assert name in end
    assert "All numbers" not in end
    assert "rng.choice" not in words  # nobody draws policies by hand
    assert repr(str(folder / "policy.json")) in end


def test_the_loader(tmp_path: Path, images):
    code = snippet(next_steps.LOADER, write_run(tmp_path))
    names = {"data": (images, np.arange(32))}
    exec(code.replace('"data/train"', "data").replace("256", "16"), names)
    assert names["images"].shape == (16, 3, 16, 16)


def test_the_transform(tmp_path: Path, images):
    names = {"images": list(images)}
    exec(snippet(next_steps.TRANSFORM, write_run(tmp_path)), names)
    assert names["image"].shape == (16, 16, 3) and names["policy"].epoch == 1


@pytest.mark.skipif("BatchPolicy" not in ddas_gpu.__all__, reason="no BatchPolicy here")
def test_batches(tmp_path: Path, images):
    import torch

    batch = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    names = {"batches": [(batch, None)]}
    exec(snippet(next_steps.BATCHES, write_run(tmp_path)), names)
    assert names["images"].shape == batch.shape and (names["images"] != batch).any()


def test_boxes_have_their_own_loader(tmp_path: Path):
    folder = write_run(tmp_path, space=SearchSpace.preset("coco"), data="coco", samples=0)
    words = Page(report_page(load_run(folder))).words()
    assert "ddas_gpu.detection_loader(" in words
    assert "PolicyTransform" not in words and "ddas export" not in words


@pytest.mark.parametrize("space", [None, BOXES])
@pytest.mark.parametrize("told", [True, False])
def test_data_from_python_get_python_and_no_command_that_needs_them(tmp_path: Path, space, told):
    """`ddas train --data custom` and `ddas compare --data custom` do not exist."""
    folder = write_run(tmp_path, space=space, data="custom", samples=0)
    run = load_run(folder)
    run.schedule.verdict.update(told=told, sentence="")
    words = Page(report_page(run)).words()
    assert "ddas train" not in words and "ddas compare" not in words
    assert ("is a good choice" in words) is not told
    assert ("BoxPolicyTransform(" in words) is (space is not None)
    assert "ddas_gpu.loader(" in words or space is not None


def test_policies_to_compare_with_in_python(tmp_path: Path):
    names: dict = {}
    exec(snippet(next_steps.PEERS, write_run(tmp_path, data="custom")), names)
    assert [*names["policies"]] == ["none", "uniform", "trivialaugment", "searched"]
    image = np.zeros((16, 16, 3), np.uint8)
    assert names["policy"](image).shape == image.shape


@pytest.mark.parametrize("text", [next_steps.UNIFORM, next_steps.PEERS_WITH_BOXES])
def test_uniform_with_boxes_in_python(tmp_path: Path, text):
    names: dict = {}
    exec(snippet(text, write_run(tmp_path, space=BOXES, data="custom")), names)
    boxes = np.array([[2.0, 2, 12, 12]])
    image, _, _ = names["policy"](np.zeros((16, 16, 3), np.uint8), boxes, np.array([1]))
    assert image.shape == (16, 16, 3)


def test_boxes_in_python(tmp_path: Path, images):
    code = snippet(next_steps.BOXES, write_run(tmp_path, space=BOXES, data="custom"))
    names = {"examples": [(images[0], np.array([[2.0, 2, 12, 12]]), np.array([1]))]}
    exec(code, names)
    assert len(names["boxes"]) == len(names["labels"])


def test_trivialaugment_in_python(tmp_path: Path, images):
    names: dict = {}
    exec(snippet(next_steps.TRIVIALAUGMENT, write_run(tmp_path, data="custom")), names)
    assert names["policy"](images[0]).shape == images[0].shape


def test_the_command_is_accepted(tmp_path: Path):
    folder = write_run(tmp_path / "my run", root=str(tmp_path / "a b"))
    program, name, *flags = shlex.split(next_steps.comparison(load_run(folder)))
    settings = parse(flags)
    assert (program, name) == ("ddas", "compare")
    assert settings.policy.policy == str(folder) and settings.data.root == tmp_path / "a b"
    assert settings.run.out != folder


def test_the_export_command_runs(tmp_path: Path):
    folder = write_run(tmp_path / "my run")
    words = Page(report_page(load_run(folder))).text
    (line,) = (text for text in words if text.startswith("ddas export"))
    _, *flags = shlex.split(line, comments=True)
    subprocess.run([sys.executable, "-m", "ddas_gpu", *flags], check=True, capture_output=True)
    assert (folder / "policy_pillow.py").exists()
