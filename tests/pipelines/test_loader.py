"""The loader: epochs, lengths, and resuming to the same bytes."""

from __future__ import annotations

import io
import itertools

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


def test_no_more_epochs_than_planned(make):
    batches = make()
    for _ in range(3):
        collect(batches)
    with pytest.raises(ValueError, match="epoch 3 is not one of the 3 epochs"):
        iter(batches)
    with pytest.raises(ValueError, match="epoch -1 is not one of"):
        batches.set_epoch(-1)


def test_the_state_of_another_loader_is_refused(make):
    with pytest.raises(ValueError, match="a loader with batch_size 4, but this one has 5"):
        make(batch_size=5).load_state_dict(make().state_dict())
    with pytest.raises(ValueError, match="a loader with seed 2, but this one has 3"):
        make(seed=3).load_state_dict(make().state_dict())


def test_evaluation_is_exact(arrays):
    batches = loader(arrays, batch_size=8, device="cpu", training=False, mean=[0] * 3, std=[1] * 3)
    for _ in range(5):  # no schedule, no end
        images, labels = (torch.cat(each) for each in zip(*collect(batches), strict=True))
        assert labels.tolist() == list(range(22))
        np.testing.assert_array_equal(images.permute(0, 2, 3, 1).numpy(), arrays[0])


def test_evaluation_takes_no_policy(arrays, schedule):
    with pytest.raises(ValueError, match="images to test on are not augmented"):
        loader(arrays, schedule, 8, epochs=1, training=False)


def test_ranks_of_torch_distributed_share_the_data(arrays, schedule, tmp_path):
    torch.multiprocessing.spawn(_rank, (arrays, schedule, str(tmp_path)), nprocs=2)
    seen = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    assert [len(labels) for labels in seen] == [11, 11]
    assert sorted(torch.cat(seen).tolist()) == list(range(22))


def _rank(rank, arrays, schedule, folder):
    import torch.distributed as distributed

    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    batches = loader(arrays, schedule, batch_size=4, epochs=3, device="cpu", num_threads=1)
    labels = torch.cat([labels for _, labels in batches])
    torch.save(labels, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_a_schedule_needs_the_number_of_epochs(arrays, schedule):
    with pytest.raises(ValueError, match="the number of epochs that you train for"):
        ddas_gpu.loader(arrays, schedule)
