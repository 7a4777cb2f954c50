"""The policy as a node of a pipeline that somebody else wrote."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("nvidia.dali")

from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIClassificationIterator, LastBatchPolicy

import ddas_gpu
from ddas_gpu import PolicySchedule, SearchSpace, augment, streams

SPACE = SearchSpace.preset("cifar")
SCHEDULE = PolicySchedule(
    SPACE, [0.3, 0.6, 1.0], np.random.default_rng(5).dirichlet(np.ones(len(SPACE)), 3)
)
BOXES = SearchSpace.preset("coco")
# Inverts in the second epoch only.
INVERT = PolicySchedule(
    SearchSpace.of(["Identity", "Invert"], depth=1), [0.0, 1.0, 0.0], [[0.0, 1.0]] * 3
)
BASE = {"num_threads": 1, "device_id": None}


def in_memory(images, schedule, batch_size, **settings):
    @pipeline_def(**BASE, batch_size=batch_size)
    def pipeline():
        data = fn.external_source(source=[list(images)], cycle=True, layout="HWC")
        return ddas_gpu.dali.policy(data, schedule, **settings)

    return pipeline()


def batches(pipeline, count):
    pipeline.build()
    return [np.stack([np.array(x) for x in pipeline.run()[0]]) for _ in range(count)]


def test_every_image_gets_the_policy_of_its_place_in_the_epoch(arrays):
    images = arrays[0][:8]
    for rank in (0, 1):
        shard = {"shard_id": rank, "num_shards": 2}
        pipeline = in_memory(
            images, SCHEDULE, epochs=3, seed=4, steps_per_epoch=2, batch_size=8, **shard
        )
        for number, found in enumerate(batches(pipeline, 8)):
            epoch, place = divmod(number, 2)
            samples = np.arange(place * 8, place * 8 + 8) * 2 + rank
            policies = SCHEDULE.draw(epoch, 3, 4, samples)
            key = streams.sign_key(4, epoch)
            expected = augment(images, policies, SPACE, key, samples=samples)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("prefetch", [1, 2, 3])
def test_epochs_follow_the_reader(folder, prefetch):
    """15 images, 4 a batch: the reader makes 4 batches an epoch."""

    @pipeline_def(**BASE, batch_size=4, prefetch_queue_depth=prefetch)
    def pipeline(augmented):
        files, labels = fn.readers.file(
            file_root=str(folder), random_shuffle=True, seed=1, pad_last_batch=True, name="Reader"
        )
        images = fn.resize(fn.decoders.image(files), size=(16, 16))
        if augmented:
            images = ddas_gpu.dali.policy(images, INVERT, epochs=3)
        return images, labels

    def passes(augmented):
        iterator = DALIClassificationIterator(
            pipeline(augmented),
            reader_name="Reader",
            auto_reset=True,
            last_batch_policy=LastBatchPolicy.PARTIAL,
        )
        return [[b[0]["data"].clone() for b in iterator] for _ in range(4)]

    for epoch, (clean, found) in enumerate(zip(passes(False), passes(True), strict=True)):
        assert len(clean) == len(found) == 4
        for one, other in zip(clean, found, strict=True):
            assert (other == (255 - one if epoch == 1 else one)).all()


def test_it_can_begin_with_another_epoch_and_resume(arrays):
    settings = {"epochs": 3, "steps_per_epoch": 2, "batch_size": 22}
    whole = batches(in_memory(arrays[0], SCHEDULE, **settings), 6)
    later = batches(in_memory(arrays[0], SCHEDULE, start_epoch=1, **settings), 4)
    np.testing.assert_array_equal(whole[2:], later)


def test_it_follows_dalis_checkpoints(folder):
    @pipeline_def(**BASE, batch_size=4, enable_checkpointing=True)
    def pipeline():
        files, labels = fn.readers.file(file_root=str(folder), pad_last_batch=True, name="Reader")
        images = fn.resize(fn.decoders.image(files), size=(16, 16))
        return ddas_gpu.dali.policy(images, SCHEDULE, epochs=3), labels

    first = pipeline()
    batches(first, 5)
    checkpoint = first.checkpoint()
    rest = batches(first, 4)
    np.testing.assert_array_equal(rest, batches(pipeline(checkpoint=checkpoint), 4))


def test_images_of_many_sizes_with_shifts_that_follow():
    space = SearchSpace.of(["TranslateX"], [10], depth=1)  # 10 pixels of 100
    schedule = PolicySchedule(space, [1.0], [[1.0]], {"image_size": 100})
    images = [np.full((side, side, 3), 255, np.uint8) for side in (20, 50, 100)]
    pipeline = in_memory(images, schedule, epochs=1, steps_per_epoch=1, batch_size=3)
    pipeline.build()
    shifts = [(np.array(x) == 0).all((0, 2)).sum() for x in pipeline.run()[0]]
    assert shifts == [2, 5, 10]


def test_inside_a_pipeline_with_conditionals(arrays):
    @pipeline_def(**BASE, batch_size=22, enable_conditionals=True)
    def pipeline():
        data = fn.external_source(source=[list(arrays[0])], cycle=True, layout="HWC")
        data = ddas_gpu.dali.policy(data, INVERT, epochs=3, steps_per_epoch=1, start_epoch=1)
        if fn.random.coin_flip(dtype=types.BOOL):
            out = data
        else:
            out = fn.flip(data)
        return out

    (found,) = batches(pipeline(seed=1), 1)
    inverted = 255 - arrays[0]
    kept, flipped = (
        (found == inverted).all((1, 2, 3)),
        (found == inverted[:, :, ::-1]).all((1, 2, 3)),
    )
    assert (kept | flipped).all() and kept.any() and flipped.any()


def test_a_gpu_graph_can_be_defined_without_a_gpu(folder):
    @pipeline_def(batch_size=4, num_threads=1, device_id=0)
    def pipeline():
        files, labels = fn.readers.file(file_root=str(folder), name="Reader")
        images = fn.resize(fn.decoders.image(files, device="mixed"), size=(16, 16))
        return ddas_gpu.dali.policy(images, SCHEDULE, epochs=3), labels

    pipeline()


def test_problems_are_raised():
    grey = np.zeros((4, 8, 8, 1), np.uint8)
    pipeline = in_memory(grey, SCHEDULE, epochs=3, steps_per_epoch=1, batch_size=4)
    with pytest.raises(ValueError, match="must have the shape"):
        batches(pipeline, 8)


def test_wrong_calls(arrays):
    with pytest.raises(ValueError, match="call it inside a pipeline_def"):
        ddas_gpu.dali.policy(None, SCHEDULE, epochs=3)
    pipeline = in_memory(arrays[0], SCHEDULE, epochs=3, batch_size=22)
    with pytest.raises(ValueError, match="the pipeline has 0 readers: say how many batches"):
        batches(pipeline, 1)
    rows = np.full((1, len(BOXES)), 1 / len(BOXES))
    with pytest.raises(ValueError, match="needs boxes, which detection_pipeline reads"):
        in_memory(arrays[0], PolicySchedule(BOXES, [1.0], rows), epochs=3, batch_size=22)
    for name in ("start_epoch", "steps_per_epoch", "epochs", "seed"):
        with pytest.raises(ValueError, match=f"{name} is a whole number, . or more, not 1.5"):
            in_memory(arrays[0], SCHEDULE, batch_size=22, **{"epochs": 3} | {name: 1.5})
    with pytest.raises(ValueError, match="shard_id and num_shards go together"):
        in_memory(arrays[0], SCHEDULE, epochs=3, shard_id=1, batch_size=22)
