"""The examples run, learn, and resume."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ddas_gpu import PolicySchedule, SearchSpace

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    space = SearchSpace.preset("digits")
    rows = np.full((2, len(space)), 1 / len(space))
    PolicySchedule(space, np.array([0.2, 0.4]), rows).save(tmp_path / "policy.json")
    return tmp_path / "policy.json"


@pytest.fixture
def small_coco(tmp_path: Path) -> Path:
    """Twelve images in COCO's layout, a bright square in each."""
    root, generator = tmp_path / "coco", np.random.default_rng(0)
    (root / "annotations").mkdir(parents=True)
    (root / "train2017").mkdir()
    images, annotations = [], []
    for number in range(1, 13):
        pixels = np.zeros((60, 80, 3), np.uint8)
        x, y = (int(side) for side in generator.integers(0, 30, 2))
        pixels[y : y + 30, x : x + 30] = 255
        Image.fromarray(pixels).save(root / "train2017" / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "width": 80, "height": 60})
        annotations.append({"image_id": number, "category_id": 1, "bbox": [x, y, 30, 30]})
    content = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 1, "name": "square"}],
    }
    (root / "annotations" / "instances_train2017.json").write_text(json.dumps(content))
    return root


pytestmark = pytest.mark.usefixtures("one_thread")


def run(name: str, *arguments: object) -> Any:
    """The accuracy, the loss or the result that an example ends with."""
    return runpy.run_path(str(EXAMPLES / name))["main"]([str(a) for a in arguments])


def refuses_to_continue(name: str, settings: tuple[object, ...], capsys) -> None:
    """A checkpoint that is there is somebody's: it is neither continued nor replaced unasked."""
    with pytest.raises(SystemExit):
        run(name, *settings)
    assert "with --resume, or name another" in capsys.readouterr().err


def test_plain_loop_learns_and_resumes(policy: Path, capsys):
    settings = ("--policy", policy, "--epochs", 2, "--checkpoint", policy.with_name("state.pt"))
    pytest.importorskip("nvidia.dali")
    score = run("plain_loop.py", *settings)
    assert score > 0.7
    assert "epoch 2" in capsys.readouterr().out
    refuses_to_continue("plain_loop.py", settings, capsys)
    assert run("plain_loop.py", *settings, "--resume") == score  # nothing was left to do
    told = capsys.readouterr().out
    assert told.startswith(f"continuing {settings[-1]} after 2 of 2 epochs") and "loss" not in told


@pytest.mark.parametrize("more", [(), ("--on-batches",)])
def test_lightning_trainer_learns(policy: Path, tmp_path: Path, more: tuple[str, ...]):
    pytest.importorskip("nvidia.dali")
    pytest.importorskip("lightning", reason="Lightning is not installed: ddas_gpu[trainers]")
    settings = ("--policy", policy, "--epochs", 2, "--out", tmp_path / "out", *more)
    assert run("lightning_trainer.py", *settings) > 0.7


def test_huggingface_trainer_learns_and_resumes(policy: Path, tmp_path: Path, capsys):
    pytest.importorskip("nvidia.dali")
    pytest.importorskip("transformers", reason="not installed: ddas_gpu[trainers]")
    pytest.importorskip("accelerate", reason="not installed: ddas_gpu[trainers]")
    settings = ("--policy", policy, "--out", tmp_path / "out")
    assert run("huggingface_trainer.py", *settings, "--epochs", 2) > 0.7
    refuses_to_continue("huggingface_trainer.py", settings, capsys)
    assert run("huggingface_trainer.py", *settings, "--epochs", 3, "--resume") > 0.7
    assert f"continuing from the last checkpoint in {tmp_path / 'out'}" in capsys.readouterr().out


def test_accelerate_loop_learns_and_resumes(policy: Path, tmp_path: Path, capsys):
    pytest.importorskip("nvidia.dali")
    pytest.importorskip("accelerate", reason="not installed: ddas_gpu[trainers]")
    settings = ("--policy", policy, "--epochs", 2, "--checkpoint", tmp_path / "state")
    score = run("accelerate_loop.py", *settings)
    assert score > 0.7 and "epoch 2" in capsys.readouterr().out
    refuses_to_continue("accelerate_loop.py", settings, capsys)
    assert run("accelerate_loop.py", *settings, "--resume") == score  # nothing was left to do
    told = capsys.readouterr().out
    assert "after 2 of 2 epochs" in told and "is done" not in told


def test_dali_pipeline_learns(policy: Path, tmp_path: Path, capsys):
    pytest.importorskip("nvidia.dali")
    folder, generator = tmp_path / "colours", np.random.default_rng(0)
    for channel in range(3):
        (folder / str(channel)).mkdir(parents=True)
        for number in range(8):
            pixels = generator.integers(0, 60, (40, 40, 3), np.uint8)
            pixels[:, :, channel] += 150
            Image.fromarray(pixels).save(folder / str(channel) / f"{number}.png")
    sizes = ("--size", 32, "--batch-size", 5, "--epochs", 12)
    last = run("dali_pipeline.py", "--root", folder, "--policy", policy, *sizes)
    first = float(capsys.readouterr().out.split("\n")[0].split()[-1])
    assert last < first


@pytest.mark.parametrize("workers", [0, 2])
def test_an_existing_dataloader_learns(policy: Path, workers: int):
    settings = ("--policy", policy, "--epochs", 2, "--workers", workers)
    assert run("existing_dataloader.py", *settings) > 0.7


def test_detection_loop_learns_and_resumes(small_coco: Path, tmp_path: Path, capsys):
    pytest.importorskip("nvidia.dali")
    space = SearchSpace.preset("coco")
    rows = np.full((2, len(space)), 1 / len(space))
    PolicySchedule(space, np.array([0.2, 0.4]), rows).save(tmp_path / "boxes.json")
    paths = ("--root", small_coco, "--policy", tmp_path / "boxes.json")
    sizes = ("--model", "retinanet-r18", "--short", 64, "--batch-size", 4, "--epochs", 3)
    settings = (*paths, *sizes, "--checkpoint", tmp_path / "state.pt")
    loss = run("detection_loop.py", *settings)
    told = capsys.readouterr().out.splitlines()
    first, *_, last = (line.split()[-1] for line in told if "loss" in line)
    assert float(last) < float(first) and f"{loss:.3f}" == last
    refuses_to_continue("detection_loop.py", settings, capsys)
    assert run("detection_loop.py", *settings, "--resume") == loss  # nothing was left to do
    assert f"continuing {settings[-1]} after 3 of 3 epochs" in capsys.readouterr().out


def test_masks_move_with_the_pixels():
    result = run("search_masks.py", "--epochs", 4)
    assert result.policy.settings["loss"] == "Segmentation" and result.verdict
    assert result.policy.p_o[-1].std() > 0


def test_every_example_is_tested():
    files = [Path(__file__), *(Path(__file__).parent / "trainers").glob("test_*.py")]
    tested = "".join(file.read_text("utf-8") for file in files)
    for example in EXAMPLES.glob("*.py"):
        assert example.name in tested
