"""Small data sets and schedules that the tests of the pipelines share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ddas_gpu import PolicySchedule, SearchSpace


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
def arrays() -> tuple[np.ndarray, np.ndarray]:
    """22 small images that are all different, with their number as the label."""
    images = np.random.default_rng(7).integers(0, 256, (22, 12, 10, 3), np.uint8)
    return images, np.arange(22)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of five smooth images, of different sizes."""
    root = tmp_path_factory.mktemp("folder")
    generator = np.random.default_rng(3)
    for label in range(3):
        (root / f"class{label}").mkdir()
        for number in range(5):
            small = Image.fromarray(generator.integers(0, 256, (5, 6, 3), np.uint8))
            size = (60 + 7 * number, 50 + 9 * label)
            small.resize(size, Image.Resampling.BICUBIC).save(
                root / f"class{label}" / f"{number}.{'jpg' if number % 2 else 'png'}", quality=95
            )
    return root
