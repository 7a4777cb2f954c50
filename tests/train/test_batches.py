"""Batches of a training: what the pipelines draw, for every step on demand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from layouts import write_images

from ddas_gpu.data.catalog import CATALOG
from ddas_gpu.data.full_sets import full_sets
from ddas_gpu.data.tensors import Normalise
from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.ops import augment
from ddas_gpu.pipelines import draws
from ddas_gpu.pipelines.plain import PlainBatches
from ddas_gpu.train import baselines
from ddas_gpu.train.batches import cut_holes, open_batches
from ddas_gpu.train.settings import preset

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits():
    settings = preset("digits").replace(
        batch_size=50, epochs=3, train_share=0.1, padding=2, flip=True, cutout=5, seed=4
    )
    sets = full_sets(settings.data, 0, in_memory=True)
    schedule = baselines.uniform(CATALOG["digits"].space.at(16), 0.6)
    return settings, sets, schedule


def test_every_epoch_is_the_set_in_another_order(digits):
    settings, sets, _ = digits
    settings = settings.replace(batch_size=12, padding=0, flip=False, cutout=0)
    batches, _ = open_batches(settings, sets, None, CPU)
    assert batches.steps_per_epoch == 10
    orders = []
    for epoch in range(2):
        made = [batches.batch(10 * epoch + place) for place in range(10)]
        orders.append(torch.cat([labels for _, labels in made]))
        assert np.sort(orders[-1]).tolist() == np.sort(sets.train.labels).tolist()
    assert not orders[0].equal(orders[1])


def test_a_last_batch_that_is_not_full_is_left_out(digits):
    settings, sets, _ = digits
    batches, _ = open_batches(settings, sets, None, CPU)
    assert batches.steps_per_epoch == 2  # of 120 images in batches of 50


def test_a_batch_depends_on_its_number_alone(digits):
    first, second = (open_batches(*digits, CPU)[0] for _ in range(2))
    expected = [first.batch(step)[0] for step in range(6)]
    for step in (5, 0, 3):
        assert second.batch(step)[0].equal(expected[step])


def test_batches_are_those_of_the_pipelines(digits):
    batches, _ = open_batches(*digits, CPU)
    plain = PlainBatches(batches._feed, batches._order, "cpu")
    plain.seek(3)  # the second epoch begins after two full batches and one that is not
    images, labels = plain.next()
    ours, our_labels = batches.batch(2)
    assert ours.equal(images) and our_labels.equal(labels)


def test_the_policy_acts_between_crop_and_normalisation(digits):
    settings, sets, schedule = digits
    plain = settings.replace(padding=0, flip=False, cutout=0)
    batches, _ = open_batches(plain, sets, schedule, CPU)
    images, labels = batches.batch(2)
    samples = batches._order.batch(1, 0)
    policies = draws.draw_policies(schedule, 3, 4, 1, samples)
    pixels = augment(
        sets.train.images[samples], policies, schedule.space, draws.sign_key(4, 1), samples=samples
    )
    assert images.equal(Normalise(sets.train.images)(torch.from_numpy(pixels)))
    assert labels.tolist() == sets.train.labels[samples].tolist()


def test_holes():
    inputs = torch.ones(2, 3, 6, 6)
    cut_holes(inputs, np.array([[1, 2], [-2, 4]], np.float32), 3)
    expected = torch.ones(2, 3, 6, 6)
    expected[0, :, 1:4, 2:5] = 0
    expected[1, :, :1, 4:] = 0
    assert inputs.equal(expected)


def test_test_images_are_only_normalised(digits):
    settings, sets, schedule = digits
    _, test = open_batches(settings.replace(test_batch_size=20), sets, schedule, CPU)
    for _ in range(2):
        made = list(test)
        assert torch.cat([labels for _, labels in made]).tolist() == sets.test.labels.tolist()
        images = torch.cat([images for images, _ in made])
        assert images.equal(Normalise(sets.train.images)(torch.from_numpy(sets.test.images)))


@pytest.fixture(scope="module")
def from_files(tmp_path_factory):
    root = write_images(tmp_path_factory.mktemp("files") / "data", ("a", "b"), count=7)
    sizes = {"image_size": 16, "batch_size": 4, "test_batch_size": 3}
    settings = preset("folder").replace(root=root, epochs=3, **sizes)
    sets = full_sets(settings.data, 0, in_memory=False)
    return settings, sets, baselines.uniform(CATALOG["folder"].space.at(16), 0.6)


def test_files_give_any_step_on_demand(from_files):
    first, test = open_batches(*from_files, CPU)
    assert first.steps_per_epoch == 3  # of 14 images in batches of 4
    expected = [first.batch(step) for step in range(9)]
    assert expected[0][0].shape == (4, 3, 16, 16)
    second, _ = open_batches(*from_files, CPU)
    for step in (4, 5, 6, 2, 3, 8):
        images, labels = second.batch(step)
        assert images.equal(expected[step][0]) and labels.equal(expected[step][1])
    for _ in range(2):
        labels = torch.cat([labels for _, labels in test])
        assert labels.tolist() == [0] * 7 + [1] * 7


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_ranks_share_the_steps_of_one_process(digits, ranks):
    """Disjoint, complete, and image by image what one process makes of them."""
    settings, sets, schedule = digits
    settings = settings.replace(batch_size=30)
    alone, test = open_batches(settings, sets, schedule, CPU)
    shared, tests = zip(
        *(open_batches(settings, sets, schedule, CPU, Ranks(r, ranks)) for r in range(ranks)),
        strict=True,
    )
    assert {batches.steps_per_epoch for batches in shared} == {alone.steps_per_epoch}
    for step in (0, 3, 11):
        whole = {image.numpy().tobytes() for image in alone.batch(step)[0]}
        parts = [batches.batch(step)[0] for batches in shared]
        assert [len(part) for part in parts] == [30 // ranks] * ranks
        assert {image.numpy().tobytes() for part in parts for image in part} == whole
    tested = [image.numpy().tobytes() for part in tests for images, _ in part for image in images]
    assert tested == [image.numpy().tobytes() for images, _ in test for image in images]


def test_ranks_share_files(from_files):
    """The last step of an epoch is full on all ranks or left out, and then the next one begins."""
    settings, sets, schedule = from_files
    settings = settings.replace(batch_size=2)
    alone, test = open_batches(settings, sets, schedule, CPU)
    ranks = [open_batches(settings, sets, schedule, CPU, Ranks(rank, 2)) for rank in range(2)]
    assert {batches.steps_per_epoch for batches, _ in ranks} == {alone.steps_per_epoch}
    for step in range(2 * alone.steps_per_epoch):
        whole = {image.numpy().tobytes() for image in alone.batch(step)[0]}
        parts = [batches.batch(step)[0] for batches, _ in ranks]
        assert {image.numpy().tobytes() for part in parts for image in part} == whole
    tested = [label for _, part in ranks for _, labels in part for label in labels.tolist()]
    assert tested == [label for _, labels in test for label in labels.tolist()]


def test_a_batch_that_is_too_large_for_all_ranks(digits):
    settings, sets, _ = digits
    with pytest.raises(ValueError, match="--batch-size 50 on 3 ranks is larger than the set"):
        open_batches(settings.replace(ranks=3), sets, None, CPU, Ranks(0, 3))
