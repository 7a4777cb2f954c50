"""Samples for the report: written by the search, read back by the report."""

from __future__ import annotations

import numpy as np
import pytest

from ddas_gpu.pipelines.box_feed import Examples
from ddas_gpu.report.reading import read_samples
from ddas_gpu.tasks.detection import sample_arrays

NAMES = ("cat", "dog", "cow", "hen")


@pytest.fixture
def examples() -> Examples:
    """Three images of different sizes, the second without boxes."""
    generator = np.random.default_rng(0)
    shapes = (10, 30), (20, 8), (16, 16)
    images = [generator.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes]
    boxes = [generator.uniform(0, 8, (count, 4)) for count in (2, 0, 5)]
    labels = [np.array([1, 0]), np.zeros(0, np.int64), np.array([3, 1, 1, 2, 0])]
    return Examples(images, boxes, labels)


def test_what_is_written_is_read(examples, tmp_path):
    np.savez(tmp_path / "samples.npz", **sample_arrays(examples, NAMES))
    samples = read_samples(tmp_path / "samples.npz")
    assert samples.names == ["cat, dog", "nothing", "dog, cat, cow"]
    for read, written in (
        (samples.images, examples.images),
        (samples.boxes, examples.boxes),
    ):
        assert len(read) == len(written)
        for one, other in zip(read, written, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("part", ["sizes", "boxes", "owners"])
def test_samples_that_do_not_fit_each_other(part, examples, tmp_path):
    arrays = sample_arrays(examples, NAMES)
    np.savez(tmp_path / "samples.npz", **arrays | {part: arrays[part][1:]})
    with pytest.raises(ValueError, match="do not fit the 3 images"):
        read_samples(tmp_path / "samples.npz")
    del arrays["sizes"]
    np.savez(tmp_path / "samples.npz", **arrays)
    with pytest.raises(ValueError, match="does not hold sample images"):
        read_samples(tmp_path / "samples.npz")
