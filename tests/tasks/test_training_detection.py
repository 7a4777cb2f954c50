"""Training a detector: the paper's recipe, the command from end to end, and bad input."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import Killed, die, metrics
from PIL import Image
from small_coco import write_coco
from train_commands import at_step, refused, results, train

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.models import build
from ddas_gpu.models.frozen_batch_norm import FrozenBatchNorm2d
from ddas_gpu.models.resnet import ResNet
from ddas_gpu.pipelines import detection_loader
from ddas_gpu.tasks.detection import resize_for
from ddas_gpu.train.loop import Training, open_training
from ddas_gpu.train.policies import open_policy
from ddas_gpu.train.settings import TrainSettings, preset

NARROW = {
    **{"model": "narrow_detector:build", "image_size": 64, "resize": "square"},
    "anchor_scale": 1.0,
    "batch_size": 4,
    "test_batch_size": 3,
    "epochs": 3,
    "evaluate_every": 2,
    **{"lr": 0.01, "policy": "uniform", "threads": 1},
}
FLAGS = ["--data=coco", *(f"--{k.replace('_', '-')}={v}" for k, v in NARROW.items())]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Nine training images, two steps an epoch, and five test images."""
    return write_coco(tmp_path_factory.mktemp("coco"))


@pytest.fixture(scope="module")
def whole(root, tmp_path_factory) -> Path:
    """The folder of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert train(*FLAGS, "--root", root, "--out", folder) == 0
    return folder


def make(root: Path, **changes) -> Training:
    settings = preset("coco").replace(root=root, **NARROW | changes)
    settings.check()
    return open_training(settings, open_policy(settings))


# --- recipes --------------------------------------------------------------------------------------

PAPER = {
    **{"epochs": 150, "batch_size": 64, "lr": 0.08, "weight_decay": 1e-4, "momentum": 0.9},
    **{"lr_schedule": "step", "lr_steps": (120, 140)},
    **{"image_size": 800, "resize": "keep-ratio", "flip": True, "anchor_scale": 4.0},
}


@pytest.mark.parametrize("model", ["retinanet-r50", "retinanet-r101"])
def test_the_recipe_is_the_papers(model):
    settings = preset("coco", model)
    settings.check()
    values = settings.to_json()
    assert {key: values[key] for key in PAPER} == PAPER
    assert values["model"] == model
    assert preset("coco").training.model == "retinanet-r50"


def test_a_try_out(root):
    small = preset("coco", scale=0.1).replace(root=root, train_share=1.0, test_share=0.2)
    small.check()
    assert small.training.model == "retinanet-r18"
    assert small.data.image_size == 128
    assert small.training.lr == pytest.approx(0.08 * small.training.batch_size / 64)
    assert (small.training.epochs, small.training.lr_steps) == (15, (12, 14))
    training = open_training(small, None)
    images = training.batches.batch(0).images
    assert images.shape == (8, 3, 128, 192)  # of 32 × 48 pixels: the ratio is kept
    training.step()
    assert np.isfinite(float(training.sums[0]))


# --- what the user gets ---------------------------------------------------------------------------


def test_the_run_folder(whole):
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [0, 1, 2]
    assert ["test_mAP" in line for line in lines] == [False, True, True]
    assert {"test_loss", "test_mAP50", "test_mAP75"} <= lines[1].keys()
    assert "accuracy" not in "".join(lines[1])
    assert lines[0]["images"] == 8
    assert len(PolicySchedule.load(whole / "policy.json").space) == 68


def test_the_last_weights_can_be_used_elsewhere(whole):
    content = torch.load(whole / "last.pt", weights_only=True)
    model = build(content["model"], len(content["class_names"]))
    model.load_state_dict(content["weights"])
    assert content["mAP"] == metrics(whole)[content["epoch"]]["test_mAP"]
    assert content["class_names"] == ["square", "bar"]


def test_the_report_tells_mAP_and_draws_boxes(whole):
    page = (whole / "report.html").read_text()
    assert "an mAP of" in page and "accuracy" not in page
    sheet = page[page.index('class="sheet"') :]
    pictures = re.findall(r"data:image/png;base64,([^\"]+)", sheet)
    assert len(pictures) == 2 * 8
    for data in pictures[::2][:7]:  # those without a policy; the last image has no box
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
        assert (shown == (255, 221, 0)).all(-1).any()


def test_the_end_says_what_was_reached(root, tmp_path, capsys):
    flags = ("--epochs", 1, "--policy", "none", "--root", root, "--out", tmp_path / "run")
    assert train(*FLAGS, *flags) == 0
    told = capsys.readouterr()
    assert "test mAP 0." in told.out and "after epoch 1, the last" in told.out
    assert "test mAP" in told.err
    assert not (tmp_path / "run" / "policy.json").exists()


@pytest.mark.parametrize("cut", [1, 3, 4])
def test_a_run_cut_anywhere_resumes_to_the_same_bytes(whole, root, tmp_path, monkeypatch, cut):
    flags = ("--root", root, "--out", tmp_path / "run", "--checkpoint-seconds", 0.0001)
    with monkeypatch.context() as patch:
        at_step(patch, cut, die)
        with pytest.raises(Killed):
            train(*FLAGS, *flags)
    assert train("--resume", "--out", tmp_path / "run", "--model", NARROW["model"]) == 0
    assert results(tmp_path / "run") == results(whole)


def test_resume_refuses_other_boxes(tmp_path, monkeypatch, capsys):
    root = write_coco(tmp_path / "coco")
    with monkeypatch.context() as patch:
        at_step(patch, 2, die)
        with pytest.raises(Killed):
            train(*FLAGS, "--root", root, "--out", tmp_path / "run")
    path = root / "annotations" / "instances_train2017.json"
    content = json.loads(path.read_text())
    content["annotations"][0]["bbox"][0] += 1
    path.write_text(json.dumps(content))
    assert train("--resume", "--out", tmp_path / "run", "--model", NARROW["model"]) == 2
    assert "other images" in capsys.readouterr().err


def test_it_learns(root):
    """By heart, at least: what it trains on is what it is tested on."""
    changes = {"epochs": 40, "evaluate_every": 40, "lr_schedule": "cosine", "policy": "none"}
    training = make(root, **changes, flip=False, drop_empty=True)
    training.tested = training.train
    training.test_batches = OwnBatches(training)
    while not training.finished:
        training.step()
        if training.end_of_epoch:
            line = training.finish_epoch()
    assert line["test_mAP50"] > 0.7


class OwnBatches:
    """The training images, as a test would have them."""

    def __init__(self, training: Training) -> None:
        data = training.settings.data
        self._loader = detection_loader(
            training.train, training=False, resize=resize_for(data.resize, data.image_size)
        )

    def __iter__(self):
        return iter(self._loader)


def test_real_photographs(coco_root, tmp_path):
    """With crowds, images of all shapes, 80 classes, and the policy of a search."""
    space = SearchSpace.preset("coco")
    p_o = np.full((2, len(space)), 1 / len(space))
    PolicySchedule(space, [0.2, 0.6], p_o, {"image_size": 64}).save(tmp_path / "policy.json")
    flags = ("--root", coco_root, "--policy", tmp_path / "policy.json", "--resize", "keep-ratio")
    few = ("--train-share", 0.1, "--test-share", 0.05, "--epochs", 2)
    assert train(*FLAGS, *flags, *few, "--out", tmp_path / "run") == 0
    lines = metrics(tmp_path / "run")
    assert [line["apply_probability"] for line in lines] == [0.2, 0.6]
    assert lines[1]["test_mAP"] >= 0


# --- pieces ---------------------------------------------------------------------------------------


def test_backbone_and_frozen_norm(root, tmp_path):
    torch.manual_seed(3)
    torch.save(ResNet(18, num_classes=7).state_dict(), tmp_path / "weights.pt")
    changes = {"model": "retinanet-r18", "image_size": 32}
    training = make(root, backbone=tmp_path / "weights.pt", frozen_norm=True, **changes)
    saved = torch.load(tmp_path / "weights.pt")
    assert training.model.backbone.stem[0].weight.equal(saved["stem.0.weight"])
    assert isinstance(training.model.backbone.stem[1], FrozenBatchNorm2d)


def test_16_bits_do_not_overflow_in_the_loss(root):
    training = make(root)
    outputs = {
        "logits": torch.full((4, 20000, 80), 10.0, dtype=torch.float16),
        "deltas": torch.zeros(4, 20000, 4, dtype=torch.float16),
    }
    targets = {
        "classes": torch.full((4, 20000), -1),
        "deltas": torch.zeros(4, 20000, 4),
    }
    loss = training.task.loss(outputs, targets)
    assert loss.dtype is torch.float32 and loss.isfinite()


def test_mixed_precision_is_close(root):
    losses = []
    for mixed in ("on", "off"):
        training = make(root, amp=mixed)
        training.step()
        losses.append(float(training.sums[0]))
    assert losses[0] == pytest.approx(losses[1], rel=0.05) and losses[0] != losses[1]


# --- bad input: one sentence, exit code 2, nothing left behind ------------------------------------

REFUSED = {
    "--model resnet-50": "is for classification, but --data coco is for detection",
    "--batch-size 10": "--batch-size 10 is larger than the set, which has 9 images",
    "--batch-size 9 --drop-empty": "is larger than the set, which has 8 images",
    "--cutout 16": "--cutout is for classification, not for --data coco",
    "--padding 4": "--padding is for classification, not for --data coco",
    "--crop resized": "--crop is for classification, not for --data coco",
    "--label-smoothing 0.1": "--label-smoothing is for classification, not for --data coco",
    "--svhn-extra": "--svhn-extra is for --data svhn",
    "--frozen-norm": "--frozen-norm keeps trained statistics: it needs --backbone FILE",
    "--backbone nowhere.pt": "there is no file of weights nowhere.pt",
    "--anchor-scale 0": "--anchor-scale must be above 0",
    "--test-root nowhere": "no folder nowhere",
}


@pytest.mark.parametrize(("flags", "reason"), REFUSED.items())
def test_settings_that_cannot_be(root, capsys, tmp_path, monkeypatch, flags, reason):
    monkeypatch.chdir(tmp_path)
    assert reason in refused(capsys, tmp_path, *FLAGS, "--root", root, *flags.split())


def test_policies_of_the_other_task(root, capsys, tmp_path, whole):
    space = SearchSpace.preset("digits")
    PolicySchedule(space, [0.3], [np.full(len(space), 1 / len(space))]).save(tmp_path / "p.json")
    flags = (*FLAGS, "--root", root, "--policy", tmp_path / "p.json")
    told = refused(capsys, tmp_path, *flags)
    assert "p.json: " in told and "moves pixels away from their boxes" in told
    told = refused(capsys, tmp_path, "--data", "digits", "--policy", whole, "--image-size", 64)
    assert "needs boxes, which --data coco and scenes have" in told


BROKEN = {
    "a missing image": ('"001.png"', '"moon.png"', "names the image moon.png, not in"),
    "another format": ('"annotations"', '"boxes"', "is not in COCO's format of instances"),
    "no numbers": ('"bbox": [', '"bbox": ["x", ', "needs a bbox of four numbers"),
    "no JSON": ("{", "", "is not JSON"),
}


@pytest.mark.parametrize(("old", "new", "reason"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("split", ["train2017", "val2017"])
def test_broken_annotations(capsys, tmp_path, split, old, new, reason):
    root = write_coco(tmp_path / "coco")
    path = root / "annotations" / f"instances_{split}.json"
    path.write_text(path.read_text().replace(old, new, 1))
    told = refused(capsys, tmp_path, *FLAGS, "--root", root)
    assert reason in told and f"instances_{split}.json" in told


def test_an_unreadable_image_is_named(capsys, tmp_path):
    root = write_coco(tmp_path / "coco")
    (root / "train2017" / "002.png").write_bytes(b"no image")
    told = refused(capsys, tmp_path, *FLAGS, "--root", root, "--bad-files", "stop")
    assert "002.png" in told and "--bad-files skip" in told
    assert train(*FLAGS, "--root", root, "--out", tmp_path / "run") == 2  # trusted by default
    assert "002.png" in capsys.readouterr().err


def test_settings_are_checked_for_their_task():
    with pytest.raises(ValueError, match="--drop-empty is for detection, not for --data"):
        TrainSettings().replace(drop_empty=True).check()
