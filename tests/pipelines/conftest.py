"""Small data sets and schedules that the tests of the pipelines share."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from ddas_gpu import PolicySchedule, SearchSpace
from ddas_gpu.data.coco import Annotated


@pytest.fixture(scope="session")
def schedule() -> PolicySchedule:
    """Three epochs over the whole bank; half of the images are augmented."""
    space = SearchSpace.preset("cifar")
    rows = np.random.default_rng(5).dirichlet(np.ones(len(space)), 3)
    return PolicySchedule(space, np.array([0.3, 0.5, 0.7]), rows)


@pytest.fixture(scope="session")
def all_or_nothing() -> PolicySchedule:
    """Invert in the second of three epochs, nothing in the others: epochs can be told apart."""
    space = SearchSpace.of(["Identity", "Invert"], depth=1)
    return PolicySchedule(space, np.array([0.0, 1.0, 0.0]), np.array([[0.0, 1.0]] * 3))


@pytest.fixture(scope="session")
def box_schedule() -> PolicySchedule:
    """Three epochs over all ops for images with boxes; most of the images are augmented."""
    space = SearchSpace.preset("coco")
    rows = np.random.default_rng(6).dirichlet(np.ones(len(space)), 3)
    return PolicySchedule(space, np.array([0.5, 0.7, 0.9]), rows)


@pytest.fixture(scope="session")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> list[Annotated]:
    """Eleven smooth images of different sizes with 0 to 4 boxes; a crowd is in the last but one."""
    folder, generator = tmp_path_factory.mktemp("annotated"), np.random.default_rng(8)
    made = []
    for number in range(11):
        height, width = (int(side) for side in generator.integers(40, 100, 2))
        small = Image.fromarray(generator.integers(0, 256, (5, 6, 3), np.uint8))
        file = folder / f"{number}.{'jpg' if number % 2 else 'png'}"
        small.resize((width, height), Image.Resampling.BICUBIC).save(file, quality=95)
        corners = generator.random((number % 5, 2, 2)) * (width, height)
        boxes = np.concatenate([corners.min(1), corners.max(1)], axis=1)
        labels = generator.integers(0, 80, len(boxes))
        areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
        crowd = (np.arange(len(boxes)) == 1) & (number == 9)
        made.append(Annotated(file, height, width, boxes, labels, areas, crowd))
    return made


@pytest.fixture
def as_rank(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """A function that makes it look as if torchrun had started this process."""

    def become(rank: int, count: int) -> None:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "some")
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(count))

    return become


@pytest.fixture
def no_dali(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if DALI were not installed."""
    for name in [name for name in sys.modules if name.startswith("nvidia.dali")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("graph", "dali_pipeline", "readers"):
        monkeypatch.delitem(sys.modules, f"ddas_gpu.pipelines.{name}", raising=False)
    usual = builtins.__import__

    def without(name, *args, **options):
        if name.startswith("nvidia"):
            raise ImportError(f"No module named {name!r}")
        return usual(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
