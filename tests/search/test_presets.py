"""Every preset of the search on its data set's layout: model, transform and two steps."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from layouts import write_cifar, write_images, write_svhn

from ddas_gpu.search.algorithm import Search, open_search
from ddas_gpu.search.settings import preset

FEW = {
    **{"batch_size": 2, "val_batch_size": 2, "epochs": 1, "classes": None},
    "warmup_epochs": 0,
}


pytestmark = pytest.mark.usefixtures("one_thread")


def written(data: str, root: Path) -> Path:
    """A small, faithful copy of the layout."""
    if data in ("cifar10", "cifar100"):
        write_cifar(root, data, count=400)
    elif data == "svhn":
        write_svhn(root)
    else:
        write_images(root, ("n01440764", "n01443537"), count=8)
    return root


def search_of(data: str, root: Path, **changes) -> Search:
    images = {"cifar10": 20, "cifar100": 100, "svhn": 20}.get(data, 4)  # of every class one
    sizes = {"train_images": images, "val_images": images}
    settings = preset(data).replace(root=written(data, root), **{**FEW, **sizes, **changes})
    settings.check()
    return open_search(settings)


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "svhn", "imagenet", "folder"])
def test_two_steps_with_the_papers_network(data, tmp_path):
    size = {"image_size": 64} if data == "imagenet" else {}
    search = search_of(data, tmp_path / data, **size)
    assert search.settings.training.model == preset(data).training.model
    for _ in range(2):
        metrics = search.step()
    assert math.isfinite(metrics["loss"])
    assert np.isclose(search.parameters.op_probabilities.sum(), 1)


def test_real_photographs_at_224_pixels(imagenet_root, tmp_path):
    """ImageNet as the paper searches it, but for the number of images."""
    for number, file in enumerate(sorted(imagenet_root.rglob("*.JPEG"))[:32]):
        folder = tmp_path / "train" / f"n0000000{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.name).symlink_to(file)
    few = {**FEW, "train_images": 16, "val_images": 8, "classes": 4}
    settings = preset("imagenet").replace(root=tmp_path, **few)
    search = open_search(settings)
    metrics = [search.step() for _ in range(3)]
    assert search.batches.batch(0).images.shape == (2, 224, 224, 3)
    assert all(math.isfinite(line["validation_loss"]) for line in metrics)


def test_memory_stays_flat_when_files_are_decoded_for_each_batch(tmp_path):
    pytest.importorskip("nvidia.dali")
    tiny = {"model": "small", "image_size": 32, "epochs": 200}
    search = search_of("imagenet", tmp_path / "imagenet", **tiny)
    for _ in range(60):
        search.step()
    before = resident_bytes()
    for _ in range(200):
        search.step()
    assert resident_bytes() - before < 20e6


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
