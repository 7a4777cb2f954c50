"""The same seed gives the same bytes, however the work is divided.

Elsewhere: runs and resume points (tests/cli/test_commands.py), the CPU target and the CUDA source
on the host, which both return Pillow's bytes (tests/ops/test_pillow_exact.py).
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch

from ddas_gpu import PolicySchedule, SearchSpace, augment, loader
from ddas_gpu.ops import get_num_threads, set_num_threads

pytestmark = pytest.mark.filterwarnings("ignore:ddas_gpu reads with Pillow")

SPACE = SearchSpace.preset("cifar")
SCHEDULE = PolicySchedule(SPACE, np.ones(1), np.full((1, len(SPACE)), 1 / len(SPACE)))


@pytest.fixture(params=["DALI", "plain"])
def path(request, monkeypatch) -> str:
    """Both ways to make batches."""
    if request.param == "DALI":
        pytest.importorskip("nvidia.dali")
    else:
        without_dali(monkeypatch)
    return request.param


def without_dali(monkeypatch: pytest.MonkeyPatch) -> None:
    loaders = import_module("ddas_gpu.pipelines.loader")  # its name is that of a function, too
    monkeypatch.setattr(loaders, "dali_problem", lambda: ImportError("not installed"))


def images_of(source, batch_size: int, **options) -> dict[int, bytes]:
    """One epoch; {label: pixels}."""
    made = loader(source, SCHEDULE, batch_size, 1, "cpu", seed=3, **options)
    return {
        int(label): image.numpy().tobytes()
        for batch in made
        for image, label in zip(*batch, strict=True)
    }


def test_ops_with_any_number_of_threads():
    images = np.random.default_rng(0).integers(0, 256, (len(SPACE), 33, 40, 3), np.uint8)
    policies = np.random.default_rng(1).permuted(
        np.tile(np.arange(len(SPACE))[:, None], (1, SPACE.depth)), axis=0
    )
    before = get_num_threads()
    try:
        results = []
        for threads in (1, 2, 4):
            set_num_threads(threads)
            results.append(augment(images, policies, SPACE, 5, backend="cpu"))
    finally:
        set_num_threads(before)
    assert all((result == results[0]).all() for result in results)


def test_batches_with_any_number_of_threads(path, folder):
    whole = []
    for threads in (1, 2, 4):
        made = loader(folder, SCHEDULE, 4, 1, "cpu", size=16, num_threads=threads)
        whole.append([part.numpy().tobytes() for batch in made for part in batch])
    assert whole[1:] == whole[:1] * 2


def test_any_split_into_batches(path, arrays):
    whole = images_of(arrays, 22)
    assert len(whole) == 22
    for batch_size in (4, 7, 11):
        assert images_of(arrays, batch_size) == whole


def test_any_split_into_shards(path, arrays):
    shards: dict[int, bytes] = {}
    for shard in range(2):
        shards |= images_of(arrays, 4, shard_id=shard, num_shards=2)
    assert shards == images_of(arrays, 22)


def test_dali_and_the_plain_path_on_images_in_memory(arrays, monkeypatch):
    pytest.importorskip("nvidia.dali")
    through_dali = images_of(arrays, 4)
    without_dali(monkeypatch)
    assert images_of(arrays, 4) == through_dali


def test_dali_and_the_plain_path_decode_photographs_alike(imagenet_root, monkeypatch):
    """They scale with other filters; docs/reliability.md has the figures of all photographs."""
    pytest.importorskip("nvidia.dali")
    found = []
    levels = {"mean": [0.0] * 3, "std": [1.0] * 3}
    for _ in range(2):
        made = loader(imagenet_root / "train", None, 8, 1, "cpu", size=64, seed=3, **levels)
        found.append(next(iter(made))[0])
        without_dali(monkeypatch)
    difference = torch.abs(found[0] - found[1])
    assert difference.mean() < 0.5 and (difference <= 1).float().mean() > 0.98
