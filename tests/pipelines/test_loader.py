"""The loader: epochs, lengths, and resuming to the same bytes."""

from __future__ import annotations

import io
import itertools
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("nvidia.dali")

import ddas_gpu
from ddas_gpu.pipelines import detection_loader, loader


def collect(batches) -> list[tuple[torch.Tensor, ...]]:
    return [tuple(part.clone() for part in batch) for batch in batches]


def same(one: list, other: list) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a, b)
        for x, y in zip(one, other, strict=True)
        for a, b in zip(x, y, strict=True)
    )


def saved_and_loaded(state: dict) -> dict:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


SOURCES = {
    "arrays": {"cutout": 4},
    "folder": {"cutout": 4, "size": 16},
    "annotated": {"resize": (32, 64)},
}


@pytest.fixture(params=SOURCES)
def make(request, schedule, box_schedule):
    """A function that makes a new loader over one of the sources, with some settings changed."""
    root, own = request.getfixturevalue(request.param), SOURCES[request.param]
    call, policies = loader, schedule
    if request.param == "annotated":
        call, policies = detection_loader, box_schedule

    def make(**settings):
        usual = {"batch_size": 4, "epochs": 3, "device": "cpu", "seed": 2}
        return call(root, policies, **usual | own | settings)

    return make


def test_a_batch_is_ready_for_a_model(arrays, schedule):
    images, labels = next(iter(loader(arrays, schedule, 4, 3, "cpu")))
    assert images.dtype == torch.float32 and images.shape[:2] == (4, 3) and images.is_contiguous()
    assert labels.dtype == torch.int64 and labels.shape == (4,)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(22))
    torch.nn.functional.cross_entropy(model(images), labels).backward()


def test_batches_stay_as_they_are_when_later_ones_come(make):
    assert same(list(make()), collect(make()))


def test_an_epoch_has_every_sample_once(make):
    batches = make()
    for _ in range(2):
        sizes = [len(batch.labels) for batch in batches]
        assert len(sizes) == len(batches) and sum(sizes) in (11, 15, 22) and min(sizes) < 4
    whole = make(drop_last=True)
    for _ in range(2):
        assert [len(batch.labels) for batch in whole] == [4] * len(whole)
    assert len(whole) == len(batches) - 1


def test_dropping_the_last_batch_does_not_shift_the_next_epoch(make):
    batches, whole = make(), make(drop_last=True)
    for _ in range(3):
        assert same(collect(batches)[:-1], collect(whole))


def test_resuming_in_mid_epoch_gives_the_same_bytes(make):
    batches = make()
    uninterrupted = [collect(batches) for _ in range(3)]
    for epoch, place in ((0, 0), (0, 2), (1, 1), (2, len(batches))):
        stopped = make()
        for _ in range(epoch):
            collect(stopped)
        for _ in itertools.islice(stopped, place):
            state = stopped.state_dict()
        if not place:
            state = stopped.state_dict()
        resumed = make(prefetch=3, num_threads=1)
        resumed.load_state_dict(saved_and_loaded(state))
        resumed.set_epoch(epoch)  # as trainers do; it must not go back
        assert resumed.epoch == epoch
        assert same(collect(resumed), uninterrupted[epoch][place:])
        for later in range(epoch + 1, 3):
            assert same(collect(resumed), uninterrupted[later])


def test_going_back_to_a_state_of_the_same_loader(make):
    batches = make()
    passing = iter(batches)
    next(passing)
    state = batches.state_dict()
    rest = collect(passing)
    batches.load_state_dict(state)
    assert same(collect(batches), rest)


def test_set_epoch_goes_anywhere(make):
    batches = make()
    passes = [collect(batches) for _ in range(3)]
    other = make()
    for epoch in (2, 0, 1, 1):
        other.set_epoch(epoch)
        assert same(collect(other), passes[epoch])


def test_a_pass_that_was_left_early_counts(make):
    batches, other = make(), make()
    passes = [collect(batches) for _ in range(2)]
    next(iter(other))
    assert same(collect(other), passes[1])


def test_epochs_beyond_the_last_keep_its_probabilities(arrays, all_or_nothing):
    space, p_o = all_or_nothing.space, all_or_nothing.p_o[:2]
    inverted_at_the_end = ddas_gpu.PolicySchedule(space, [0.0, 1.0], p_o)
    settings = {"padding": 0, "flip": False, "mean": [0] * 3, "std": [1] * 3, "layout": "NHWC"}
    batches = loader(arrays, inverted_at_the_end, 22, 2, "cpu", **settings)
    for epoch in range(4):
        ((images, labels),) = batches
        clean = torch.from_numpy(arrays[0][labels])
        assert torch.equal(images.to(torch.uint8), 255 - clean if epoch else clean)
    with pytest.raises(ValueError, match="epoch is a whole number, 0 or more, not -1"):
        batches.set_epoch(-1)


def test_it_has_what_trainers_look_at_in_a_dataloader(make):
    for drop_last in (False, True):
        batches = make(drop_last=drop_last)
        assert batches.batch_size == 4 and batches.drop_last is drop_last
        assert len(batches.dataset) in (11, 15, 22)
        assert len(batches.batch_sampler) == len(batches)
        assert batches.batch_sampler.batch_size == 4
        assert batches.batch_sampler.drop_last is drop_last
        assert list(batches.batch_sampler.sampler) == list(batches.sampler)
        for epoch in (2, 0):
            batches.sampler.set_epoch(epoch)
            assert batches.epoch == epoch
            listed, samples = list(batches.batch_sampler), list(batches.sampler)
            assert [len(batch) for batch in listed] == [len(batch.labels) for batch in batches]
            assert samples == [sample for batch in listed for sample in batch]
            assert len(set(samples)) == len(samples) == len(batches.sampler)


def test_the_sampler_lists_the_samples_that_come(arrays, schedule):
    batches = loader(arrays, schedule, 4, 3, "cpu")
    listed = list(batches.sampler)
    assert listed == [int(label) for _, labels in batches for label in labels]


def test_an_epoch_of_so_many_steps(make):
    for steps in (1, 2, 9):
        batches = make(steps_per_epoch=steps)
        assert len(batches) == steps
        for _ in range(2):
            assert [len(batch.labels) for batch in batches] == [4] * steps
    whole, short = make(), make(steps_per_epoch=2)
    for _ in range(3):
        assert same(collect(whole)[:2], collect(short))


def test_it_can_be_sent_to_another_process(make):
    batches = make()
    expected = collect(batches)
    copy = pickle.loads(pickle.dumps(batches))
    copy.set_epoch(0)
    assert same(collect(copy), expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 5}, "a loader with batch_size 4, but this one has 5; .* set_epoch"),
        ({"seed": 3}, "a loader with seed 2, but this one has 3"),
        ({"drop_last": True}, "a loader with drop_last False, but this one has True"),
        ({"steps_per_epoch": 2}, "a loader with steps_per_epoch None, but this one has 2"),
        ({"flip": False}, "a loader with flip True, but this one has False"),
        ({"std": [9.0] * 3}, r"a loader with std .*, but this one has \(9.0, 9.0, 9.0\)"),
    ],
)
def test_the_state_of_another_loader_is_refused(make, settings, message):
    state = make().state_dict()
    make().load_state_dict(state)
    with pytest.raises(ValueError, match=message):
        make(**settings).load_state_dict(state)


def test_a_training_may_be_made_longer(make):
    """A new loader for more epochs goes on as if it had been there from the start."""
    batches = make()
    collect(batches)
    longer, expected = make(epochs=9), make(epochs=9)
    with pytest.warns(RuntimeWarning, match="with epochs 3, but this one has 9: .* spread over 9"):
        longer.load_state_dict(batches.state_dict())
    expected.set_epoch(1)
    assert same(collect(longer), collect(expected)) and longer.epoch == 2


def test_the_state_of_another_policy_is_refused(arrays, schedule):
    state = loader(arrays, schedule, 4, 3, "cpu").state_dict()
    for other in (None, schedule.with_uniform(0.5)):
        with pytest.raises(ValueError, match=r"with policy 3 epochs of 52 candidates \(.*but this"):
            loader(arrays, other, 4, 3, "cpu").load_state_dict(state)


def test_a_state_of_an_older_version_is_continued(make):
    batches = make()
    state = batches.state_dict()
    older = {name: state["data"][name] for name in ("samples", "batch_size", "seed", "num_shards")}
    batches.load_state_dict({"epoch": 1, "batch": 2, "data": older, "memory": None})
    assert (batches.epoch, len(list(batches))) == (1, len(batches) - 2)


@pytest.mark.parametrize("state", [{}, [], {"epoch": 1, "batch": 0}])
def test_what_is_no_state(arrays, state):
    with pytest.raises(ValueError, match="^the state"):
        loader(arrays, None, 4, device="cpu").load_state_dict(state)


@pytest.mark.parametrize(
    ("settings", "problem", "message"),
    [
        ({"device": "tpu"}, ValueError, "device is one of auto, cpu, cuda, or cuda:1 …, not 'tpu'"),
        ({"device": "cuda:99"}, ValueError, "torch finds"),
        ({"epochs": 2.5}, ValueError, "epochs is a whole number, 1 or more, not 2.5"),
        ({"seed": -1}, ValueError, "seed is a whole number, 0 or more, not -1"),
        ({"schedule": "gone.json"}, FileNotFoundError, "there is no policy.json .* gone.json"),
        ({"schedule": {}}, TypeError, "what search_policy returned, or the path .*, not dict"),
        ({"training": False, "epochs": None}, ValueError, "a schedule is for training"),
    ],
)
def test_wrong_settings_are_told_at_once(arrays, schedule, settings, problem, message):
    with pytest.raises(problem, match=message):
        loader(arrays, **{"schedule": schedule, "epochs": 3, "device": "cpu"} | settings)


def test_a_policy_for_boxes_is_refused(arrays, box_schedule):
    with pytest.raises(ValueError, match="BBox_Cutout needs boxes, which detection_loader reads"):
        loader(arrays, box_schedule, 4, 3, "cpu")


def test_devices_and_numbers_of_other_libraries(make):
    device, epochs, seed = torch.device("cpu"), np.int64(3), np.int64(2)
    batches = make(device=device, epochs=epochs, seed=seed)
    assert same(collect(batches), collect(make()))
    saved_and_loaded(batches.state_dict())


def test_a_schedule_may_be_the_result_of_a_search(arrays, schedule):
    result = ddas_gpu.SearchResult(schedule, None, "")
    expected = collect(loader(arrays, schedule, 4, 3, "cpu"))
    assert same(collect(loader(arrays, result, 4, 3, "cpu")), expected)


def test_evaluation_is_exact(arrays):
    batches = loader(arrays, batch_size=8, device="cpu", training=False, mean=[0] * 3, std=[1] * 3)
    for _ in range(5):  # no schedule, no end
        images, labels = (torch.cat(each) for each in zip(*collect(batches), strict=True))
        assert labels.tolist() == list(range(22))
        np.testing.assert_array_equal(images.permute(0, 2, 3, 1).numpy(), arrays[0])


def test_evaluation_takes_no_policy(arrays, schedule):
    with pytest.raises(ValueError, match="images to test on are not augmented"):
        loader(arrays, schedule, 8, epochs=1, training=False)


@pytest.mark.parametrize("when", ["before", "after"])
def test_ranks_of_torch_distributed_share_the_data(arrays, schedule, tmp_path, when):
    """Also a loader that was made, and asked for its length, before there were ranks."""
    torch.multiprocessing.spawn(_rank, (arrays, schedule, str(tmp_path), when), nprocs=2)
    seen = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    assert [len(labels) for labels in seen] == [11, 11]
    assert sorted(torch.cat(seen).tolist()) == list(range(22))


def _rank(rank, arrays, schedule, folder, when):
    import torch.distributed as distributed

    def meet():
        distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
        )

    if when == "before":
        meet()
    batches = loader(arrays, schedule, batch_size=4, epochs=3, device="cpu", num_threads=1)
    assert len(batches) == (3 if when == "before" else 6)
    if when == "after":
        meet()
    labels = torch.cat([labels for _, labels in batches])
    torch.save(labels, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_a_seed_per_rank_is_refused(arrays, schedule, tmp_path):
    torch.multiprocessing.spawn(_seeds, (arrays, schedule, str(tmp_path)), nprocs=2)
    said = [(tmp_path / f"{rank}.txt").read_text().split("|") for rank in (0, 1)]
    for one, other in zip(*said, strict=True):  # the loader, then the pipeline
        # The rank that came first cannot know yet.
        assert "Give all ranks the same seed" in one + other and "" in (one, other)


def test_seeds_are_compared_as_soon_as_there_is_a_group(arrays, schedule, tmp_path):
    """Also if the first pass comes before."""
    torch.multiprocessing.spawn(_late_group, (arrays, schedule, str(tmp_path)), nprocs=2)
    said = [(tmp_path / f"{rank}.txt").read_text() for rank in (0, 1)]
    assert "Give all ranks the same seed" in said[0] + said[1]


def _late_group(rank, arrays, schedule, folder):
    import torch.distributed as distributed

    shard = {"shard_id": rank, "num_shards": 2, "num_threads": 1}
    batches = loader(arrays, schedule, 4, 3, "cpu", seed=12 + rank, **shard)
    list(batches)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    said = ""
    try:
        list(batches)
    except ValueError as error:
        said = str(error)
    Path(f"{folder}/{rank}.txt").write_text(said)
    distributed.barrier()
    distributed.destroy_process_group()


def _seeds(rank, arrays, schedule, folder):
    import torch.distributed as distributed

    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    common, said = {"batch_size": 4, "epochs": 3, "device": "cpu"}, []
    list(loader(arrays, schedule, seed=5, num_threads=1, **common))  # one seed for all is fine
    try:
        iter(loader(arrays, schedule, seed=12 + rank, **common))
        said.append("")
    except ValueError as error:
        said.append(str(error))
    try:
        shard = {"shard_id": rank, "num_shards": 2}
        ddas_gpu.training_pipeline(arrays, schedule, seed=12 + rank, **common, **shard)
        said.append("")
    except ValueError as error:
        said.append(str(error))
    Path(f"{folder}/{rank}.txt").write_text("|".join(said))
    distributed.barrier()
    distributed.destroy_process_group()


def test_several_processes_without_a_group_are_warned(arrays, schedule, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    batches = loader(arrays, schedule, 4, 3, "cpu")
    with pytest.warns(RuntimeWarning, match="WORLD_SIZE is 2, but .* no process group"):
        iter(batches)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        iter(loader(arrays, schedule, 4, 3, "cpu", shard_id=0, num_shards=2))
    with pytest.warns(RuntimeWarning, match="every process gets all images"):
        ddas_gpu.training_pipeline(arrays, schedule, 4, 3, "cpu")


@pytest.mark.parametrize(
    ("keyword", "nearest"),
    [
        ("steps_per_epochs", "steps_per_epoch"),
        ("bach_size", "batch_size"),
        ("Mean", "mean"),
        ("shard", "shard_id"),
    ],
)
def test_a_misspelt_keyword_is_answered_with_the_nearest(arrays, schedule, keyword, nearest):
    for call in (loader, ddas_gpu.training_pipeline):
        with pytest.raises(TypeError, match=f"no keyword '{keyword}'; did you mean '{nearest}'"):
            call(arrays, schedule, epochs=3, device="cpu", **{keyword: 4})


def test_shifts_and_holes_follow_the_size_of_the_images(arrays):
    space = ddas_gpu.SearchSpace.of(["TranslateX"], [10], depth=1)  # 10 pixels
    settings = {"padding": 0, "flip": False, "mean": [0] * 3, "std": [1] * 3, "layout": "NHWC"}
    for recorded, pixels in (({"image_size": 50}, 2), ({"image_size": 10}, 10), ({}, 10)):
        schedule = ddas_gpu.PolicySchedule(space, [1.0], [[1.0]], recorded)
        ((images, labels),) = loader(arrays, schedule, 22, 1, "cpu", **settings)
        for image, label in zip(images.to(torch.uint8), labels, strict=True):
            clean = torch.from_numpy(arrays[0][label])
            left, right = torch.zeros_like(clean), torch.zeros_like(clean)
            left[:, : 10 - pixels] = clean[:, pixels:]
            right[:, pixels:] = clean[:, : 10 - pixels]
            assert torch.equal(image, left) or torch.equal(image, right)


def test_a_schedule_needs_the_number_of_epochs(arrays, schedule):
    with pytest.raises(ValueError, match="the number of epochs that you train for"):
        ddas_gpu.loader(arrays, schedule)
