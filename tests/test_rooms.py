"""A newcomer can guess the file: few modules at the root, few files on the three main walks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from layouts import write_cifar
from small_coco import write_coco
from walks import PACKAGE, steps_back, walked

from ddas_gpu import PolicySchedule, SearchSpace, loader
from ddas_gpu.search.algorithm import open_search
from ddas_gpu.search.settings import preset

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = {
    **{"train_images": 4, "val_images": 4, "batch_size": 2, "val_batch_size": 2, "policies": 2},
    "warmup_epochs": 0,
}


def search_walk(data: str, root: Path, **changes) -> dict[str, str | None]:
    """The files between the images on the disk and α."""
    search = open_search(preset(data).replace(root=root, epochs=2, threads=1, **FEW | changes))
    with walked() as files:
        search.task.search_sets()
        for _ in range(2):
            search.step()
    return files


def test_from_an_image_to_alpha_on_cifar(tmp_path):
    files = search_walk(
        "cifar10",
        write_cifar(tmp_path / "cifar", count=100),
        model="wrn-10-1",
        train_images=20,
        val_images=20,
    )
    assert {"data/cifar.py", "pipelines/feed.py", "search/alpha.py"} <= set(files)
    assert len(files) <= 35, " ".join(files)
    assert not steps_back(files)


def test_from_an_image_to_alpha_on_coco(tmp_path):
    pytest.importorskip("nvidia.dali")
    changes = {"image_size": 64, "resize": "square", "anchor_scale": 1.0}
    root = write_coco(tmp_path / "coco", train=12)
    files = search_walk("coco", root, model="narrow_detector:build", **changes)
    assert {"data/coco.py", "pipelines/box_feed.py", "search/alpha.py"} <= set(files)
    assert len(files) <= 40, " ".join(files)
    assert not steps_back(files)


def test_from_a_file_to_a_tensor_in_the_loader(folder):
    pytest.importorskip("nvidia.dali")
    space = SearchSpace.preset("cifar")
    even = PolicySchedule(space, np.ones(1), np.full((1, len(space)), 1 / len(space)))
    with walked() as files:
        batches = loader(folder, even, batch_size=4, epochs=1, device="cpu", size=32)
        next(iter(batches))
    assert {"data/folder.py", "pipelines/graph.py", "ops/backends.py"} <= set(files)
    assert len(files) <= 17, " ".join(files)
    assert not steps_back(files)


def test_the_root_holds_a_dozen_modules():
    assert len(list(PACKAGE.glob("*.py"))) <= 13


def test_no_two_rooms_have_a_file_of_the_same_name():
    """But for those that every command has."""
    usual = {"__init__.py", "__main__.py", "settings.py", "job.py", "api.py"}
    modules = [file for file in PACKAGE.rglob("*.py") if "parts" not in file.parts]  # templates
    names = Counter(file.name for file in modules if file.name not in usual)
    assert not [name for name, count in names.items() if count > 1]
