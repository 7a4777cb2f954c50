"""Batches for the search are clean, and a function of what was asked for alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("nvidia.dali")

from ddas_gpu.data.folder import FolderSource, read_image
from ddas_gpu.pipelines.recipe import make_recipe
from ddas_gpu.pipelines.searching import SearchImages, search_pipeline


def images_of(folder, training: bool, **settings) -> SearchImages:
    source = FolderSource(folder)
    return SearchImages(
        source.files,
        source.labels,
        source.class_names,
        size=24,
        training=training,
        batch_size=6,
        **{"device": "cpu", **settings},
    )


def test_training_batches_repeat_with_their_generator(folder):
    images = images_of(folder, training=True)
    indices = np.array([3, 11, 3, 7])
    first = images.batch(indices, np.random.default_rng(1))
    images.batch(np.arange(6), np.random.default_rng(8))
    assert first.shape == (4, 24, 24, 3) and first.dtype == torch.uint8
    again = images_of(folder, training=True, num_threads=1)
    np.testing.assert_array_equal(first, again.batch(indices, np.random.default_rng(1)))
    assert (first[0] != first[2]).any(), "the same image twice has two crops"
    assert (first != images.batch(indices, np.random.default_rng(2))).any()


def test_validation_batches_are_the_middle_whatever_the_generator(folder):
    images = images_of(folder, training=False)
    batch = images.batch(np.array([4, 0]), np.random.default_rng(1))
    np.testing.assert_array_equal(batch, images.batch(np.array([4, 0]), np.random.default_rng(2)))
    whole = read_image(images.files[4])
    assert np.abs(batch[0].numpy().mean((0, 1)) - whole.mean((0, 1))).max() < 30


def test_half_of_the_training_images_are_mirrored_unless_told_not_to(folder):
    draws = [np.random.default_rng(5) for _ in range(2)]
    indices = np.arange(6)
    mirrored = images_of(folder, training=True).batch(indices, draws[0])
    plain = images_of(folder, training=True, flip=False).batch(indices, draws[1])

    def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
        return (one.int() - other).abs().max() <= 1  # which way sums are rounded

    turned = [alike(m, p.flip(1)) for m, p in zip(mirrored, plain, strict=True)]
    same = [alike(m, p) for m, p in zip(mirrored, plain, strict=True)]
    assert all(t or s for t, s in zip(turned, same, strict=True)) and any(turned) and any(same)


def test_a_gpu_graph_can_be_defined_without_a_gpu(folder):
    recipe = make_recipe(images_of(folder, training=True), size=24)
    for training in (True, False):
        search_pipeline(recipe, 4, "gpu", training=training)


@pytest.mark.gpu
def test_a_gpu_decodes_what_the_cpu_does(folder):
    """All but the last bits, which nvJPEG rounds in its own way."""
    for training in (True, False):
        on_cpu, on_gpu = (
            images_of(folder, training, device=device).batch(np.arange(6), np.random.default_rng(1))
            for device in ("cpu", "gpu")
        )
        assert on_gpu.is_cuda
        assert (on_gpu.cpu().float() - on_cpu.float()).abs().mean() < 2
