"""The pipelines as a user sees them: the same bytes for any threads, prefetching and restart."""

from __future__ import annotations

import itertools
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("nvidia.dali")

from nvidia.dali.plugin.pytorch import (
    DALIClassificationIterator,
    DALIGenericIterator,
    LastBatchPolicy,
)

import ddas_gpu
from ddas_gpu import PolicySchedule, SearchSpace, augment, streams
from ddas_gpu.pipelines import evaluation_pipeline, training_pipeline
from ddas_gpu.pipelines.dali_pipeline import ImagePipeline

RAW = {"mean": [0.0] * 3, "std": [1.0] * 3, "layout": "NHWC"}  # levels come out as they are


def run(pipeline: ImagePipeline, batches: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(images, labels) of the next batches, copied."""
    return [
        tuple(np.array(output.as_tensor()) for output in pipeline.run()) for _ in range(batches)
    ]


def same(one: list, other: list) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a, b)
        for x, y in zip(one, other, strict=True)
        for a, b in zip(x, y, strict=True)
    )


def expected_batch(images, samples, schedule, epochs, epoch, seed, padding, flip):
    """Slow and plain: one image after the other."""
    policies = schedule.draw(epoch, epochs, seed, samples)
    crops, flips = streams.crops_and_flips(seed, epoch, samples, flip)
    batch = []
    for row, sample in enumerate(samples):
        image = images[sample]
        padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
        top, left = streams.shifts(crops, padding)[row]
        part = padded[top : top + image.shape[0], left : left + image.shape[1]]
        part = np.ascontiguousarray(part[:, ::-1] if flips[row] else part)
        key = streams.sign_key(seed, epoch)
        batch += augment([part], policies[row], schedule.space, key, samples=[sample])
    return np.stack(batch)


@pytest.mark.parametrize("flip", [True, False])
def test_a_batch_is_cropped_flipped_and_augmented_as_drawn(arrays, schedule, flip):
    pipeline = training_pipeline(arrays, schedule, 8, 3, "cpu", padding=2, flip=flip, seed=9, **RAW)
    for number, (images, labels) in enumerate(run(pipeline, 7)):
        epoch, place = divmod(number, 3)
        samples = pipeline.order.batch(epoch, place)
        expected = expected_batch(arrays[0], samples, schedule, 3, epoch, 9, 2, flip)
        np.testing.assert_array_equal(images, expected)
        np.testing.assert_array_equal(labels, samples[:, None])
        assert images.dtype == np.float32 and labels.dtype == np.int32


def test_the_policy_acts_on_decoded_files(folder, schedule):
    plain = training_pipeline(folder, None, 5, 3, "cpu", size=(20, 24), **RAW)
    policy = training_pipeline(folder, schedule, 5, 3, "cpu", size=(20, 24), **RAW)
    for number, ((clean, _), (images, labels)) in enumerate(
        zip(run(plain, 6), run(policy, 6), strict=True)
    ):
        epoch, place = divmod(number, 3)
        samples = policy.order.batch(epoch, place)
        drawn = schedule.draw(epoch, 3, 0, samples)
        key = streams.sign_key(0, epoch)
        expected = augment(clean.astype(np.uint8), drawn, schedule.space, key, samples=samples)
        np.testing.assert_array_equal(images, expected)
        np.testing.assert_array_equal(labels[:, 0], samples // 5)  # five images a class


@pytest.mark.parametrize("source", ["arrays", "folder"])
@pytest.mark.parametrize("changed", [{"num_threads": 1}, {"prefetch": 1}, {"prefetch": 3}])
def test_threads_and_prefetching_change_nothing(request, schedule, source, changed):
    root = request.getfixturevalue(source)
    usual = {"num_threads": 2, "prefetch": 2, "cutout": 6}
    size = {} if source == "arrays" else {"size": 24}
    one, other = (
        run(training_pipeline(root, schedule, 4, 3, "cpu", **size, **settings), 9)
        for settings in (usual, usual | changed)
    )
    assert same(one, other)


@pytest.mark.parametrize("prefetch", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [4, 11, 22])  # 6, 2 and 1 batches an epoch
def test_an_epochs_probabilities_act_from_its_first_batch_to_its_last(
    arrays, all_or_nothing, prefetch, batch_size
):
    pipeline = training_pipeline(
        arrays,
        all_or_nothing,
        batch_size,
        3,
        "cpu",
        padding=0,
        flip=False,
        prefetch=prefetch,
        **RAW,
    )
    length = pipeline.order.batches
    for number, (images, labels) in enumerate(run(pipeline, 4 * length)):
        clean = arrays[0][labels[:, 0]]
        inverted = number // length == 1
        np.testing.assert_array_equal(images, 255 - clean if inverted else clean)


def test_any_batch_can_be_the_first(folder, schedule):
    whole = run(training_pipeline(folder, schedule, 4, 3, "cpu", size=16), 10)
    later = run(training_pipeline(folder, schedule, 4, 3, "cpu", size=16, first=5), 5)
    assert same(whole[5:], later)


def test_any_epoch_can_be_the_first(folder, schedule):
    whole = run(training_pipeline(folder, schedule, 4, 3, "cpu", size=16), 12)
    later = training_pipeline(folder, schedule, 4, 3, "cpu", size=16, start_epoch=1)
    assert later.epoch == 1
    assert same(whole[4:], run(later, 8))


@pytest.mark.parametrize("prefetch", [1, 2, 3])
def test_set_epoch_goes_anywhere(arrays, schedule, prefetch):
    whole = run(training_pipeline(arrays, schedule, 4, 3, "cpu"), 18)  # 6 batches an epoch
    pipeline = training_pipeline(arrays, schedule, 4, 3, "cpu", prefetch=prefetch)
    pipeline.set_epoch(1)
    assert same(run(pipeline, 2), whole[6:8])
    pipeline.set_epoch(1)  # as the trainers do that say what is so already
    assert same(run(pipeline, 1), whole[8:9])
    for epoch in (2, 0, 1):
        pipeline.set_epoch(epoch)
        assert pipeline.epoch == epoch
        assert same(run(pipeline, 3), whole[6 * epoch :][:3])
    with pytest.raises(ValueError, match="epoch is a whole number, 0 or more, not -1"):
        pipeline.set_epoch(-1)


def test_set_epoch_under_dalis_iterators(arrays, schedule):
    """Every epoch is left early."""
    pipeline = training_pipeline(arrays, schedule, 4, 3, "cpu")
    batches = DALIClassificationIterator(pipeline, size=-1)
    for epoch in range(3):
        pipeline.set_epoch(epoch)
        labels = [b[0]["label"].flatten().tolist() for b in itertools.islice(batches, 4)]
        assert labels == [pipeline.order.batch(epoch, place).tolist() for place in range(4)]


def test_an_epoch_of_so_many_steps(arrays, schedule):
    pipeline = training_pipeline(arrays, schedule, 4, 3, "cpu", steps_per_epoch=2)
    batches = DALIClassificationIterator(pipeline, reader_name="Reader", auto_reset=True)
    whole = training_pipeline(arrays, schedule, 4, 3, "cpu").order
    assert len(batches) == 2
    for epoch in range(3):
        labels = [batch[0]["label"].flatten().tolist() for batch in batches]
        assert labels == [whole.batch(epoch, place).tolist() for place in range(2)]


def test_dalis_own_checkpoints_resume(arrays, schedule):
    settings = {"enable_checkpointing": True, "cutout": 4}
    pipeline = training_pipeline(arrays, schedule, 4, 3, "cpu", **settings)
    run(pipeline, 8)
    checkpoint = pipeline.checkpoint()
    rest = run(pipeline, 5)
    resumed = training_pipeline(arrays, schedule, 4, 3, "cpu", checkpoint=checkpoint, **settings)
    assert same(rest, run(resumed, 5))


def test_ranks_see_what_one_process_would_see(arrays, schedule):
    def by_label(batches):
        return {
            int(label): image
            for images, labels in batches
            for image, label in zip(images, labels[:, 0], strict=True)
        }

    alone = by_label(run(training_pipeline(arrays, schedule, 11, 3, "cpu"), 2))
    ranks = [
        by_label(
            run(training_pipeline(arrays, schedule, 11, 3, "cpu", shard_id=r, num_shards=2), 1)
        )
        for r in (0, 1)
    ]
    assert not set(ranks[0]) & set(ranks[1]) and len(alone) == 22
    for label, image in (ranks[0] | ranks[1]).items():
        np.testing.assert_array_equal(image, alone[label])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layout_dtype_normalisation_and_cutout(arrays, layout, dtype):
    mean, std = np.array([100.0, 120.0, 140.0]), np.array([50.0, 60.0, 70.0])
    settings = {"mean": mean, "std": std, "padding": 0, "flip": False, "cutout": 4}
    pipeline = training_pipeline(arrays, None, 22, 1, "cpu", layout=layout, dtype=dtype, **settings)
    ((images, labels),) = run(pipeline, 1)
    samples = labels[:, 0]
    expected = (arrays[0][samples] - mean) / std
    corners = streams.hole_corners(0, 0, samples, (12, 10), 4)
    for image, (top, left) in zip(expected, corners, strict=True):
        image[max(top, 0) : top + 4, max(left, 0) : left + 4] = 0
    if layout == "NCHW":
        expected = expected.transpose(0, 3, 1, 2)
    assert images.dtype == dtype
    np.testing.assert_allclose(images, expected, atol=1e-5 if dtype == "float32" else 2e-3)


def test_arrays_are_normalised_with_their_own_statistics(arrays):
    ((images, _),) = run(training_pipeline(arrays, None, 22, 1, "cpu", padding=0), 1)
    np.testing.assert_allclose(images.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(images.std((0, 2, 3)), 1, atol=1e-4)


def test_files_can_be_padded_like_small_arrays(tmp_path, arrays):
    from PIL import Image

    (tmp_path / "a").mkdir()
    for number, image in enumerate(arrays[0][:6]):
        Image.fromarray(image).save(tmp_path / "a" / f"{number}.png")
    settings = {"crop": "pad", "size": (12, 10), "padding": 3, **RAW}
    files = run(training_pipeline(tmp_path, None, 6, 1, "cpu", **settings), 2)
    memory = run(
        training_pipeline((arrays[0][:6], np.zeros(6, int)), None, 6, 1, "cpu", padding=3, **RAW), 2
    )
    assert same(files, memory)


@pytest.mark.parametrize(
    ("policy", "sizes"),
    [
        (LastBatchPolicy.FILL, [8, 8, 8]),
        (LastBatchPolicy.PARTIAL, [8, 8, 6]),
        (LastBatchPolicy.DROP, [8, 8]),
    ],
)
def test_dalis_iterators(arrays, schedule, policy, sizes):
    pipeline = training_pipeline(arrays, schedule, 8, 3, "cpu")
    batches = DALIClassificationIterator(
        pipeline, reader_name="Reader", auto_reset=True, last_batch_policy=policy
    )
    assert len(batches) == len(sizes)
    for epoch in range(3):
        labels = [batch[0]["label"].flatten().tolist() for batch in batches]
        assert [len(some) for some in labels] == sizes
        order = [pipeline.order.batch(epoch, place).tolist() for place in range(3)]
        assert labels == [o[:s] for o, s in zip(order, sizes, strict=False)]


def test_the_generic_iterator_over_two_shards(folder, schedule):
    pipelines = [
        training_pipeline(folder, schedule, 4, 3, "cpu", size=16, shard_id=rank, num_shards=2)
        for rank in (0, 1)
    ]
    batches = DALIGenericIterator(
        pipelines,
        ["images", "labels"],
        reader_name="Reader",
        auto_reset=True,
        last_batch_policy=LastBatchPolicy.PARTIAL,
    )
    for _ in range(2):
        count = sum(len(each["labels"]) for batch in batches for each in batch)
        assert count == 16  # 15 images, dealt evenly
    assert pipelines[0].epoch_size("Reader") == 16 and pipelines[0].epoch_size() == {"Reader": 16}
    with pytest.raises(ValueError, match="the reader is called 'Reader', not 'reader'"):
        pipelines[0].reader_meta("reader")


def test_evaluation_is_in_order_and_shows_every_image_once(folder, arrays):
    for root, labels, size in (
        (folder, np.repeat([0, 1, 2], 5), {"size": 16}),
        (arrays, arrays[1], {}),
    ):
        seen = []
        for rank in range(2):
            pipeline = evaluation_pipeline(root, 4, "cpu", shard_id=rank, num_shards=2, **size)
            batches = DALIClassificationIterator(
                pipeline, reader_name="Reader", last_batch_policy=LastBatchPolicy.PARTIAL
            )
            seen += [int(n) for batch in batches for n in batch[0]["label"]]
        assert seen == labels.tolist()


def test_evaluation_leaves_arrays_as_they_are(arrays):
    ((images, _),) = run(evaluation_pipeline(arrays, 22, "cpu", **RAW), 1)
    np.testing.assert_array_equal(images, arrays[0])


def test_a_schedule_may_be_a_file(arrays, schedule, tmp_path):
    schedule.save(tmp_path / "policy.json")
    from_file = training_pipeline(arrays, tmp_path / "policy.json", 8, 3, "cpu")
    assert same(run(from_file, 2), run(training_pipeline(arrays, schedule, 8, 3, "cpu"), 2))


def test_a_schedule_may_be_the_folder_of_a_run(arrays, schedule, tmp_path):
    with pytest.raises(ValueError, match="holds no policy.json and is not the folder of a run"):
        training_pipeline(arrays, tmp_path, 8, 3, "cpu")
    (tmp_path / "config.json").write_text('{"command": "search"}')
    with pytest.raises(ValueError, match="is not finished .*: resume it with ddas search --resume"):
        training_pipeline(arrays, tmp_path, 8, 3, "cpu")
    schedule.save(tmp_path / "policy.json")
    from_run = training_pipeline(arrays, str(tmp_path), 8, 3, "cpu")
    assert same(run(from_run, 2), run(training_pipeline(arrays, schedule, 8, 3, "cpu"), 2))


def test_a_released_policy_on_real_cifar(shared_data: Path, tmp_path):
    policies = sorted((shared_data / "released_policies").glob("*cifar10*.npy"))
    if not policies:
        pytest.skip("no released policy for CIFAR-10")
    with tarfile.open(shared_data / "cifar10.tar.gz") as tar:
        files = (member for member in tar if member.isfile())
        for member in itertools.islice(files, 20):
            tar.extract(member, tmp_path, filter="data")
    schedule = PolicySchedule.from_released(policies[0])
    pipeline = training_pipeline(tmp_path, schedule, 8, 200, "cpu", crop="pad", size=32, cutout=16)
    images, _ = run(pipeline, 1)[0]
    assert images.shape == (8, 3, 32, 32) and np.isfinite(images).all()


def test_it_is_a_public_name():
    assert ddas_gpu.training_pipeline is training_pipeline


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device": "tpu"}, "device is one of auto, cpu, cuda, or cuda:1 …, not 'tpu'"),
        ({"epochs": 0}, "epochs is a whole number, 1 or more, not 0"),
        ({"layout": "CHW"}, "layout is one of NCHW, NHWC, not 'CHW'"),
        ({"dtype": "int8"}, "dtype is one of float32, float16, not 'int8'"),
        ({"crop": "middle"}, "crop is one of pad, resized, not 'middle'"),
        ({"size": 7}, "the images in memory have .12, 10. pixels"),
        ({"padding": -1}, "padding is a number of pixels, 0 or more, not -1"),
        ({"std": [1, 0, 1]}, "std has a number .*for each of 3 channels"),
        ({"shard_id": 1}, "shard_id and num_shards go together"),
        ({"steps_per_epoch": 0}, "steps_per_epoch is a whole number, 1 or more, not 0"),
        ({"start_epoch": -1}, "start_epoch is a whole number, 0 or more, not -1"),
        ({"first": 1.5}, "first is a whole number, 0 or more, not 1.5"),
        ({"seed": None}, "seed is a whole number, 0 or more, not None"),
        ({"batch_size": "16"}, "batch_size is a whole number, 1 or more, not '16'"),
        ({"mean": (0.485, 0.456, 0.406)}, "mean is given in levels .* multiply it by 255"),
        ({"std": [0.229, 0.224, 0.225]}, "std is given in levels .* multiply it by 255"),
        ({"mean": [0.5] * 3, "std": [0.5] * 3}, "mean is given in levels"),
        ({"on_bad_files": "hide"}, "on_bad_files is one of .*not 'hide'"),
    ],
)
def test_wrong_settings(arrays, schedule, settings, message):
    with pytest.raises(ValueError, match=message):
        training_pipeline(arrays, schedule, **{"device": "cpu", "batch_size": 4} | settings)


def test_a_device_of_torch(arrays):
    assert training_pipeline(arrays, None, 4, device=torch.device("cpu")).device_id is None


def test_a_schedule_that_does_not_fit_its_space(arrays, schedule, tmp_path):
    schedule.save(tmp_path / "policy.json")
    text = (tmp_path / "policy.json").read_text().replace('["Identity"], ', "", 1)
    (tmp_path / "policy.json").write_text(text)
    with pytest.raises(ValueError, match="policy.json: p_o has the shape .3, 52., but .* 51 cand"):
        training_pipeline(arrays, tmp_path / "policy.json", 4, 3, "cpu")


def test_a_gpu_graph_can_be_defined_without_a_gpu(arrays, folder, schedule):
    for root in (arrays, folder):
        training_pipeline(root, schedule, 4, 3, "gpu", cutout=8, dtype="float16")
        evaluation_pipeline(root, 4, "gpu")
    training_pipeline(folder, schedule, 4, 3, "gpu", crop="pad", size=32)


def test_a_gpu_pipeline_without_a_gpu_says_so(arrays, schedule):
    from ddas_gpu.pipelines.order import gpu_found

    if gpu_found():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match="device='cuda' needs an NVIDIA GPU and CuPy"):
        training_pipeline(arrays, schedule, 4, 3, "gpu").run()


@pytest.mark.gpu
def test_gpu_and_cpu_agree_on_arrays(arrays, schedule):
    def batches(device):
        pipeline = training_pipeline(arrays, schedule, 8, 3, device, cutout=4, **RAW)
        return [[np.array(o.as_cpu().as_tensor()) for o in pipeline.run()] for _ in range(6)]

    assert same(batches("gpu"), batches("cpu"))


@pytest.mark.gpu
def test_a_gpu_pipeline_on_files(folder, schedule):
    def labels(device):
        pipeline = training_pipeline(folder, schedule, 4, 3, device, size=32)
        return [np.array(pipeline.run()[1].as_cpu().as_tensor()) for _ in range(6)]

    assert all((a == b).all() for a, b in zip(labels("gpu"), labels("cpu"), strict=True))


def test_square_only_ops_on_other_shapes_are_refused_with_their_own_words(arrays):
    space = SearchSpace.preset("sanity")
    only = np.array([[c.op == "Rotate90" for c in space]], float)
    pipeline = training_pipeline(arrays, PolicySchedule(space, np.ones(1), only), 4, 1, "cpu")
    with pytest.raises(ValueError, match="Rotate90 needs square images, not 12x10 pixels"):
        pipeline.run()
