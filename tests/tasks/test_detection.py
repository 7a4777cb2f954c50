"""Detection in the search: versions with boxes of their own, and the command from end to end."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from search_commands import results, search

from ddas_gpu import PolicySchedule, SearchSpace, streams
from ddas_gpu.detection import targets_for
from ddas_gpu.models.retinanet import anchors_for
from ddas_gpu.ops import augment_boxes
from ddas_gpu.pipelines.pixels import normalise_and_pad
from ddas_gpu.pipelines.transform import IMAGENET_MEAN, IMAGENET_STD
from ddas_gpu.report.run import load_run
from ddas_gpu.search.algorithm import Search, open_search
from ddas_gpu.search.settings import SearchSettings, preset
from ddas_gpu.tasks.task import open_task

SMALL = {
    "train_images": 8,
    "val_images": 4,
    "batch_size": 2,
    "val_batch_size": 2,
    "policies": 2,
    "epochs": 1,
    **{"image_size": 64, "resize": "square", "anchor_scale": 1.0, "lr": 0.01},
    "model": "narrow_detector:build",
}


pytestmark = pytest.mark.usefixtures("one_thread")


def small(root: Path, sanity_check: str | None = None, **changes) -> SearchSettings:
    return preset("coco", sanity_check).replace(root=root, **SMALL | changes)


def make(settings: SearchSettings, space: SearchSpace | None = None) -> Search:
    return open_search(settings, space)


def network_inputs(images) -> torch.Tensor:
    return normalise_and_pad(images, IMAGENET_MEAN, IMAGENET_STD)


def test_the_preset_is_the_papers():
    settings = preset("coco")
    values = settings.to_json()
    paper = {
        **{"model": "retinanet-r50", "train_images": 3000, "val_images": 1500, "epochs": 30},
        **{"batch_size": 4, "val_batch_size": 4, "policies": 3, "depth": 2, "levels": (4, 6, 8)},
        **{"apply_probability": 0.35, "lr_ops": 0.001, "lr_apply": 0.001, "smoothing": 1},
        **{"lr": 0.04, "lr_schedule": "step", "lr_steps": (24, 28), "weight_decay": 1e-4},
    }
    assert {name: values[name] for name in paper} == paper
    space = settings.search_space()
    assert (len(space), space.depth, space.fill) == (68, 2, 128)
    check = preset("coco", "rotate90").search_space()
    assert check.depth == 1 and "Rotate90_BBox" in [candidate.op for candidate in check]
    # Shifts shrink with the images.
    assert settings.replace(image_size=48).search_space().scale.translate == 25


@pytest.mark.parametrize("resize", ["square", "keep-ratio"])
def test_each_version_has_the_pixels_and_boxes_of_its_policy(resize, coco_root):
    search = make(small(coco_root, resize=resize, batch_size=3))
    names = [str(candidate) for candidate in search.space]
    drawn = ["Identity", "Rotate_BBox 6", "TranslateX_BBox 8", "Solarize_Only_BBoxes 8"]
    policies = np.array([[names.index(name)] * 2 for name in drawn])
    batch = search.batches.batch(0)
    clean, key = batch.examples, streams.sign_key(search.seed, 0)
    versions = search.task.versions(batch, policies, search.space)
    assert versions.inputs.shape[:3] == (5, 3, 3)
    assert versions.unchanged.tolist() == [True, False, False, False]
    height, width = versions.inputs.shape[-2:]
    anchors = anchors_for(height, width, 1.0)
    assert torch.equal(versions.inputs[0], network_inputs(clean.images))
    expected = targets_for(anchors, clean.boxes, clean.labels)
    for part, tensor in expected.items():
        assert torch.equal(versions.targets[0][part], tensor)
        assert torch.equal(versions.targets[1][part], tensor)
    for number, policy in enumerate(policies, 1):
        samples = batch.samples + (number - 1) * 2**32  # every version draws for itself
        images, boxes, labels = augment_boxes(*clean, policy, search.space, key, samples=samples)
        assert torch.equal(versions.inputs[number], network_inputs(images))
        for part, tensor in targets_for(anchors, boxes, labels).items():
            assert torch.equal(versions.targets[number][part], tensor)
    moved = versions.targets[3]["deltas"]
    assert not torch.equal(moved, expected["deltas"])


def test_a_step_with_every_method_finds_the_same_rewards(coco_root):
    """All is as in classification from here on: `PolicyGradients` takes a detector unchanged."""
    found = {}
    for method in ("reference", "fast", "lean"):
        search = make(small(coco_root, gradients=method))
        metrics = search.step()
        assert np.isfinite(metrics["rewards"]).all() and any(metrics["rewards"])
        assert metrics["images"] == 3 * 2 + 2
        found[method] = metrics["rewards"]
    np.testing.assert_allclose(found["fast"], found["reference"], rtol=1e-2)
    np.testing.assert_allclose(found["lean"], found["reference"], rtol=1e-2)


def test_policies_that_change_nothing_have_no_reward(coco_root):
    search = make(small(coco_root), SearchSpace.of(("Identity",), depth=2))
    assert search.step()["rewards"] == [0.0, 0.0]


def test_the_sets_are_disjoint_and_the_sanity_check_changes_neither(coco_root):
    sizes = {"train_images": 100, "val_images": 28, "seed": 3}
    train, validation = open_task(small(coco_root, **sizes)).search_sets()
    assert len(set(train.files) | set(validation.files)) == 128
    checked = open_task(small(coco_root, "rotate90", **sizes)).search_sets()
    assert [s.fingerprint() for s in checked] == [train.fingerprint(), validation.fingerprint()]


def test_validation_images_of_another_domain(coco_root):
    settings = small(coco_root, val_root=coco_root, train_images=128, val_images=128)
    train, validation = open_task(settings).search_sets()
    assert len(train) == len(validation) == 128


FLAGS = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]


@pytest.fixture(scope="module")
def whole(coco_root, tmp_path_factory) -> Path:
    """The folder of a small search, from the command line."""
    folder = tmp_path_factory.mktemp("detection") / "run"
    flags = ["--data", "coco", "--root", coco_root, *FLAGS, "--threads", 1]
    assert search(*flags, "--out", folder) == 0
    return folder


def test_the_command_runs_to_its_end(whole):
    schedule = PolicySchedule.load(whole / "policy.json")
    assert len(schedule.space) == 68 and schedule.space.fill == 128
    assert np.isfinite(schedule.p_o).all() and 0 < schedule.p_tp[0] < 1
    assert schedule.p_o[0].std() > 0
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 4


def test_a_resumed_run_ends_in_the_same_bytes(whole, coco_root, tmp_path, monkeypatch):
    folder, step = tmp_path / "run", Search.step

    class Killed(Exception):
        pass

    def until_the_third(self):
        if self.steps == 2:
            raise Killed
        return step(self)

    flags = ["--data", "coco", "--root", coco_root, *FLAGS, "--threads", 1, "--out", folder]
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Search, "step", until_the_third)
        search(*flags, "--checkpoint-seconds", 1e-9)
    assert search("--resume", "--out", folder, "--model", SMALL["model"]) == 0
    assert results(folder) == results(whole)


def test_the_report_draws_the_boxes_before_and_after(whole):
    run = load_run(whole)
    assert len(run.samples.boxes) == len(run.samples.images) == 8
    assert sum(map(len, run.samples.boxes)) > 0
    page = (whole / "report.html").read_text()
    sheet = page[page.index('class="sheet"') :]
    pictures = re.findall(r"data:image/png;base64,([^\"]+)", sheet)
    assert len(pictures) == 2 * 8  # the policies of the one epoch
    yellow = []
    for data in pictures:
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
        yellow.append((shown == (255, 221, 0)).all(-1).any())
    with_boxes = [len(boxes) > 0 for boxes in run.samples.boxes]
    assert yellow[::2] == with_boxes
    assert sum(yellow[1::2]) > 0


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--train-images 200", "204 images are wanted, but there are only 128"),
        ("--classes 3", "--classes is for classification"),
        ("--model small", "--model small is for classification, but --data coco is for detection"),
        ("--sanity-check rotate90 --resize keep-ratio", "they must be square, --resize square"),
        ("--frozen-norm", "--frozen-norm keeps trained statistics: it needs --backbone"),
        ("--backbone nowhere.pt", "there is no file of weights nowhere.pt"),
        ("--anchor-scale 0", "--anchor-scale must be above 0"),
    ],
)
def test_settings_that_cannot_be(flags, reason, coco_root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert search("--data", "coco", "--root", coco_root, *FLAGS, *flags.split()) == 2
    told = capsys.readouterr().err
    assert reason in told and len(told.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_root_that_is_not_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DDAS_DATA", raising=False)
    assert search("--data", "coco", *FLAGS) == 2
    told = capsys.readouterr().err
    assert "no folder data/coco; it must hold annotations/instances_train2017.json" in told


def test_a_detector_needs_boxes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert search("--model", "retinanet-r18") == 2
    assert (
        "--model retinanet-r18 is for detection, but --data digits is for classification"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("data", "op", "reason"),
    [
        ("coco", "FlipLR", "FlipLR moves pixels away from their boxes"),
        ("digits", "Equalize_Only_BBoxes", "Equalize_Only_BBoxes needs boxes"),
    ],
)
def test_spaces_of_the_other_task(data, op, reason, tmp_path):
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"candidates": [["Identity"], [op]]}))
    settings = preset(data).replace(space=path, levels=())
    with pytest.raises(ValueError, match=reason):
        settings.search_space()


def test_a_space_of_ones_own(tmp_path):
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"candidates": [["Equalize"], ["Rotate_BBox", 4]], "fill": 128}))
    space = preset("coco").replace(space=path, levels=(), depth=1).search_space()
    assert (len(space), space.depth, space.fill) == (2, 1, 128)
