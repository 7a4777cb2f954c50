"""Candidates that are one and the same are named, in the terminal and in the report."""

from __future__ import annotations

import numpy as np
import pytest
from run_folders import write_run

from ddas_gpu import ops
from ddas_gpu.report.writing import write_report
from ddas_gpu.space import SearchSpace
from ddas_gpu.tasks.same_candidates import same_candidates, sameness

pytestmark = pytest.mark.usefixtures("one_thread")


def groups(name: str, size: int, **facts: bool) -> list[str]:
    space = SearchSpace.preset(name)
    found = same_candidates(space, size, **facts)
    return [" ".join(str(space[index]) for index in group) for group in found]


@pytest.mark.parametrize(
    ("name", "size", "facts", "expected"),
    [
        ("cifar", 32, {}, ["Invert Solarize 10 Solarize 14", "Posterize 10 Posterize 14"]),
        ("imagenet", 224, {"flip": True}, ["Identity FlipLR", "Invert Solarize 14"]),
        ("sanity", 32, {"grey": True}, ["Identity Color 2"]),
        ("digits", 16, {"grey": True}, ["Identity Color 4 Color 8"]),
        ("coco", 480, {"flip": True}, []),
    ],
)
def test_the_presets(name, size, facts, expected):
    assert groups(name, size, **facts) == expected


def test_levels_that_do_nothing():
    space = SearchSpace.of(("Identity", "TranslateX", "Color", "Rotate"), (0, 5, 10, 10.01))
    assert sameness(space, 24, flip=False, grey=False) == (
        "these candidates do the same here: Identity = TranslateX 0 = Color 5 = Rotate 0; "
        "TranslateX 10 = TranslateX 10.01; Rotate 10 = Rotate 10.01"
    )


def test_what_is_called_the_same_has_the_same_bytes():
    space, images = (
        SearchSpace.preset("cifar"),
        np.random.default_rng(1).integers(0, 256, (9, 20, 20, 3)),
    )
    for group in same_candidates(space, 20):
        first, *others = (
            ops.augment(images.astype(np.uint8), np.full((9, 1), index), space, 0)
            for index in group
        )
        assert all(np.array_equal(first, other) for other in others)


def test_the_report_says_so(tmp_path):
    space = SearchSpace.preset("cifar")
    folder = write_run(tmp_path / "run", space=space, image_size=32, flip=True)
    page = write_report(folder).read_text()
    assert "Identity = FlipLR" in page and "Posterize 10 = Posterize 14" in page
    folder = write_run(
        tmp_path / "other", space=SearchSpace.of(("Identity", "Blur")), image_size=32
    )
    assert "do the same here" not in write_report(folder).read_text()
