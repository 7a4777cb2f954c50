"""It must work: a detector learns, and a search for it finds what there is to find."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from ddas_gpu.data.coco import Annotated, open_coco
from ddas_gpu.detection import (
    average_precision,
    detection_loss,
    detections,
    targets_for,
)
from ddas_gpu.models import build
from ddas_gpu.models.retinanet import anchors_for
from ddas_gpu.pipelines import detection_loader
from ddas_gpu.search import algorithm as searching
from ddas_gpu.search.algorithm import open_search
from ddas_gpu.search.settings import SearchSettings, preset

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

SIZE, SCALE = 64, 2.0  # pixels a side, and anchors for things so small


def smallest_share(image: Annotated) -> float:
    """Of the image's area, that of its smallest box."""
    sides = image.boxes[:, 2:] - image.boxes[:, :2]
    return sides.prod(1).min() / (image.width * image.height)


def test_retinanet_learns_sixteen_images_by_heart(coco_root):
    coco = open_coco(coco_root).without_empty()
    # Those in which even the smallest box can be made out in so few pixels.
    truth, count = sorted(coco.images, key=smallest_share, reverse=True)[:16], 16
    (batch,) = detection_loader(truth, batch_size=count, training=False, resize=SIZE, device="cpu")
    anchors = anchors_for(SIZE, SIZE, SCALE)
    inputs, targets = batch.images, targets_for(anchors, batch.boxes, batch.labels)

    torch.manual_seed(0)
    model = build("retinanet-r18", len(coco.class_names))
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0)

    def precision() -> float:
        model.eval()
        with torch.no_grad():
            found = detections(model(inputs), anchors, [(SIZE, SIZE)] * count)
        model.train()
        found = [
            one.scaled(image.width / SIZE, image.height / SIZE)
            for one, image in zip(found, truth, strict=True)
        ]
        return average_precision(truth, found, coco.class_names)["mAP50"]

    assert precision() < 0.01
    reached, steps = 0.0, 0
    while reached <= 0.9 and steps < 200:
        optimizer.param_groups[0]["lr"] = 3e-4 * min(1.0, (steps + 1) / 20)
        optimizer.zero_grad()
        detection_loss(model(inputs), targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        steps += 1
        if steps % 10 == 0:
            reached = precision()
    assert reached > 0.9


@pytest.fixture(scope="module")
def people(coco_root, tmp_path_factory) -> Path:
    """The 134 images with people, and nothing but people marked.

    People stand. Turned by 90° they lie, which a small detector can learn within minutes; what a
    turned toothbrush looks like it cannot.
    """
    root = tmp_path_factory.mktemp("people")
    (root / "annotations").mkdir()
    (root / "train2017").mkdir()
    together = {"images": [], "annotations": [], "categories": [{"id": 1, "name": "person"}]}
    for split in ("train2017", "val2017"):
        content = json.loads((coco_root / "annotations" / f"instances_{split}.json").read_text())
        marked = [one for one in content["annotations"] if one["category_id"] == 1]
        together["annotations"] += marked
        wanted = {one["image_id"] for one in marked}
        for image in content["images"]:
            if image["id"] in wanted:
                together["images"].append(image)
                name = image["file_name"]
                (root / "train2017" / name).symlink_to(coco_root / split / name)
    (root / "annotations" / "instances_train2017.json").write_text(json.dumps(together))
    return root


def check_settings(root: Path, **changes) -> SearchSettings:
    """The sanity check, scaled down to minutes."""
    scaled = {
        **{"root": root, "train_images": 64, "val_images": 64, "image_size": SIZE, "batch_size": 8},
        **{"val_batch_size": 16, "epochs": 16, "policies": 8, "lr": 0.01, "lr_schedule": "cosine"},
        **{"anchor_scale": SCALE, "lr_ops": 0.02, "model": "narrow_detector:build"},
    }
    return preset("coco", "rotate90").replace(**scaled | changes)


def ranking(settings: SearchSettings) -> list[str]:
    """The candidates after a search, most probable first."""
    space = settings.search_space()
    search = open_search(settings, space)
    while not search.finished:
        search.step()
    probabilities = search.parameters.op_probabilities
    assert np.isfinite(probabilities).all()
    return [space[i].op for i in np.argsort(-probabilities, kind="stable")]


def test_turned_validation_images_make_rotate90_win(people):
    assert ranking(check_settings(people))[0] == "Rotate90_BBox"


def test_the_check_fails_with_the_sign_of_the_rewards_flipped(people, monkeypatch):
    """A check that cannot fail would prove nothing."""
    monkeypatch.setattr(searching, "rewards", lambda dots: dots[1:] - dots[0])
    assert ranking(check_settings(people))[0] != "Rotate90_BBox"


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_stays_flat(coco_root):
    """After what is allocated once: no step leaves anything behind, whatever it draws."""
    few = {"sanity_check": None, "levels": (4, 6, 8), "depth": 2, "batch_size": 4, "policies": 3}
    settings = check_settings(coco_root, **few, val_batch_size=4, epochs=20)
    search = open_search(settings)
    for _ in range(50):
        search.step()
    before = resident_bytes()
    for _ in range(200):
        search.step()
    assert resident_bytes() - before < 20e6
