"""Batches of a run: any step on demand, the same on any number of ranks, with DALI or without."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ddas_gpu import streams
from ddas_gpu.data.folder import open_folder
from ddas_gpu.data.opening import open_images
from ddas_gpu.data.sources import ImageArrays
from ddas_gpu.ops import augment
from ddas_gpu.pipelines.batches import StepBatches
from ddas_gpu.pipelines.box_feed import BoxFeed, flipped_boxes
from ddas_gpu.pipelines.feed import LabelFeed
from ddas_gpu.pipelines.order import Order, order_for
from ddas_gpu.pipelines.pixels import normalise
from ddas_gpu.pipelines.transform import Square, make_box_transform, make_transform

PLAIN = {"padding": 0, "flip": False, "cutout": 0}


def steps(source, batch_size=6, rank=0, ranks=1, workers=None, clean=False, **options):
    training, schedule = options.pop("training", True), options.pop("schedule", None)
    usual = {} if isinstance(source, ImageArrays) else {"size": 24}
    transform = make_transform(source, **usual | options)
    feed = LabelFeed(
        source,
        transform,
        training=training,
        seed=4,
        schedule=schedule,
        total_epochs=3,
        clean=clean,
    )
    order = order_for(len(source), batch_size, 4, rank, ranks)
    return StepBatches(feed, order, "cpu", workers)


@pytest.fixture(scope="module")
def in_memory(arrays):
    return open_images(arrays)


@pytest.fixture(params=["arrays", "files", "files without DALI"])
def source(request, in_memory, folder):
    if request.param == "arrays":
        return in_memory
    if request.param == "files":
        pytest.importorskip("nvidia.dali")
    else:
        request.getfixturevalue("no_dali")
    return open_folder(folder)


def test_every_epoch_is_the_set_in_another_order(in_memory):
    batches = steps(in_memory, 11, **PLAIN)
    assert batches.per_epoch == 2
    orders = []
    for epoch in range(2):
        made = [batches.batch(2 * epoch + place) for place in range(2)]
        orders.append(torch.cat([batch.labels for batch in made]))
        assert np.sort(orders[-1]).tolist() == np.sort(in_memory.labels).tolist()
    assert not orders[0].equal(orders[1])


def test_a_last_batch_that_is_not_full_is_left_out(in_memory):
    assert steps(in_memory, 8).per_epoch == 2  # of 22 images


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.filterwarnings("ignore:ddas_gpu reads with Pillow")
def test_a_batch_depends_on_its_number_alone(source, clean):
    first, second = steps(source, clean=clean), steps(source, clean=clean, workers=1)
    expected = [first.batch(step).images.clone() for step in range(6)]
    for step in (5, 0, 3, 4):
        assert second.batch(step).images.equal(expected[step])
    assert not expected[0].equal(expected[first.per_epoch])


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.filterwarnings("ignore:ddas_gpu reads with Pillow")
def test_ranks_share_the_steps_of_one_process(source, ranks, schedule):
    """Disjoint, complete, and image by image what one process makes of them."""
    alone = steps(source, 6, schedule=schedule)
    parts = [steps(source, 6 // ranks, rank, ranks, schedule=schedule) for rank in range(ranks)]
    assert {part.per_epoch for part in parts} == {alone.per_epoch}
    for step in range(4):
        whole = {image.numpy().tobytes() for image in alone.batch(step).images}
        made = [image.numpy().tobytes() for part in parts for image in part.batch(step).images]
        assert len(made) == 6 and set(made) == whole


def test_a_batch_that_is_too_large_for_all_ranks(in_memory):
    with pytest.raises(ValueError, match="--batch-size 8 on 3 ranks is larger than the set"):
        steps(in_memory, 8, 0, 3)


def test_the_policy_acts_between_crop_and_normalisation(in_memory, schedule):
    batches = steps(in_memory, 11, schedule=schedule, **PLAIN)
    made = batches.batch(2)
    samples = batches.order.batch(1, 0)
    policies = schedule.draw(1, 3, 4, samples)
    pixels = augment(
        in_memory.images[samples], policies, schedule.space, streams.sign_key(4, 1), samples=samples
    )
    output = make_transform(in_memory).output
    assert made.images.equal(normalise(torch.from_numpy(pixels), output.mean, output.std))
    assert made.labels.tolist() == in_memory.labels[samples].tolist()


@pytest.mark.filterwarnings("ignore:ddas_gpu reads with Pillow")
def test_clean_batches_are_bytes_with_what_the_search_needs(source):
    batches = steps(source, clean=True, cutout=5)
    batch = batches.batch(1)
    assert batch.images.dtype == torch.uint8 and batch.images.shape[3] == 3
    assert batch.samples.tolist() == batches.order.batch(0, 1).tolist() and batch.epoch == 0
    assert batch.labels.tolist() == source.labels[batch.samples].tolist()
    size = tuple(batch.images.shape[1:3])
    assert (batch.holes == streams.hole_corners(4, 0, batch.samples, size, 5)).all()
    middle = steps(source, clean=True, cutout=5, training=False).batch(1)
    assert middle.holes is None


def test_dali_and_the_host_crop_the_same_part(folder, request):
    pytest.importorskip("nvidia.dali")
    source = open_folder(folder)
    for training in (True, False):
        through_dali = steps(source, clean=True, training=training).batch(0)
        feed = LabelFeed(
            source, make_transform(source, size=24), training=training, seed=4, clean=True
        )
        host = feed.on_host(order_for(len(source), 6, 4, 0, 1), "cpu", None)
        host.seek(0)
        difference = (through_dali.images.float() - host.next().images.float()).abs()
        assert difference.mean() < 3  # they scale with other filters


def test_half_of_the_training_images_are_mirrored_unless_told_not_to(folder):
    pytest.importorskip("nvidia.dali")
    source = open_folder(folder)
    mirrored, plain = (steps(source, 12, clean=True, flip=f).batch(0).images for f in (True, False))

    def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
        return (one.int() - other).abs().max() <= 1  # which way sums are rounded

    flipped = [alike(m, p.flip(1)) for m, p in zip(mirrored, plain, strict=True)]
    same = [alike(m, p) for m, p in zip(mirrored, plain, strict=True)]
    assert all(f or s for f, s in zip(flipped, same, strict=True)) and any(flipped) and any(same)


def test_the_next_batch_is_made_while_the_caller_computes(in_memory, monkeypatch):
    batches = steps(in_memory, clean=True)
    host = batches._batches
    batches.batch(0)
    position, ahead = host._ahead
    assert position == 1
    expected = ahead.result().pixels
    monkeypatch.setattr(host, "_prepare", None)  # it is not made a second time
    monkeypatch.setattr(host._background, "submit", lambda *_: None)
    np.testing.assert_array_equal(batches.batch(1).images, expected)


def test_an_unreadable_file_is_named_when_its_batch_is_due(folder, tmp_path, no_dali):
    source = open_folder(folder)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not an image")
    source.files[int(Order(15, 5, 4, drop_last=True).batch(0, 1)[0])] = broken
    with pytest.warns(RuntimeWarning, match="DALI is missing"):
        batches = steps(source, 5, clean=True)
    batches.batch(0)
    with pytest.raises(ValueError, match=r"broken\.png"):
        batches.batch(1)


@pytest.mark.parametrize("training", [True, False])
def test_a_gpu_graph_can_be_defined_without_a_gpu(folder, annotated, training):
    pytest.importorskip("nvidia.dali")
    from ddas_gpu.data.coco import Coco
    from ddas_gpu.pipelines.api import make_pipeline

    source = open_folder(folder)
    label_feed = LabelFeed(source, make_transform(source), training=training, clean=True)
    make_pipeline(label_feed, Order(15, 4), "cuda")
    box_feed = BoxFeed(Coco(annotated), make_box_transform(), training=training, clean=True)
    make_pipeline(box_feed, Order(11, 4), "cuda")


@pytest.mark.gpu
def test_a_gpu_decodes_what_the_cpu_does(folder):
    """All but the last bits, which nvJPEG rounds in its own way."""
    source = open_folder(folder)
    for training in (True, False):
        feed = LabelFeed(source, make_transform(source, size=24), training=training, clean=True)
        order = order_for(len(source), 6, 0, 0, 1)
        on_cpu, on_gpu = (
            StepBatches(feed, order, device).batch(0).images for device in ("cpu", "cuda")
        )
        assert on_gpu.is_cuda
        assert (on_gpu.cpu().float() - on_cpu.float()).abs().mean() < 2


# --- with boxes -----------------------------------------------------------------------------------


@pytest.fixture(params=["DALI", "host"])
def box_steps(request, annotated):
    from ddas_gpu.data.coco import Coco

    if request.param == "DALI":
        pytest.importorskip("nvidia.dali")
    else:
        request.getfixturevalue("no_dali")

    def make(training=True, **options):
        transform = make_box_transform(resize=Square(64), **options)
        feed = BoxFeed(Coco(annotated), transform, training=training, seed=2, clean=True)
        return StepBatches(feed, order_for(len(annotated), 5, 2, 0, 1), "cpu")

    return make


@pytest.mark.filterwarnings("ignore:ddas_gpu reads with Pillow")
def test_boxes_are_mirrored_with_their_pixels(box_steps):
    mirrored, again, plain = (box_steps(flip=f).batch(3) for f in (True, True, False))
    count = 0
    for i in range(5):
        image, boxes = mirrored.examples.images[i], mirrored.examples.boxes[i]
        assert image.equal(again.examples.images[i])
        assert np.array_equal(boxes, again.examples.boxes[i])
        other, places = plain.examples.images[i], plain.examples.boxes[i]
        if (image.int() - other).abs().max() <= 1:
            assert np.array_equal(boxes, places)
        else:
            assert (image.int() - other.flip(1)).abs().max() <= 1
            assert np.array_equal(boxes, flipped_boxes(places, 64))
            count += 1
    assert 0 < count < 5


@pytest.mark.filterwarnings("ignore:ddas_gpu reads with Pillow")
def test_the_sanity_check_rotates_images_with_their_boxes(box_steps):
    plain, rotated = (box_steps(training=False, rotate90=r).batch(1).examples for r in (0, 1))
    for i in range(5):
        expected = np.rot90(plain.images[i].numpy())
        np.testing.assert_array_equal(rotated.images[i], expected)
        for before, after in zip(plain.boxes[i], rotated.boxes[i], strict=True):
            x0, y0, x1, y1 = before
            np.testing.assert_allclose(after, [y0, 64 - x1, y1, 64 - x0])
