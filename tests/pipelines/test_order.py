"""Every sample once an epoch, on one rank or on many."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddas_gpu.pipelines import order
from ddas_gpu.pipelines.order import Order, ReaderOrder, gpu_number, torch_device


def whole_epoch(epochs: Order, epoch: int) -> np.ndarray:
    batches = [epochs.batch(epoch, place) for place in range(epochs.batches)]
    assert all(len(batch) == epochs.batch_size for batch in batches)
    return np.concatenate(batches)[: epochs.shard_size]


@given(
    samples=st.integers(1, 60),
    batch_size=st.integers(1, 70),
    num_shards=st.integers(1, 5),
    shuffle=st.booleans(),
)
def test_the_ranks_share_all_samples(samples: int, batch_size: int, num_shards: int, shuffle: bool):
    samples = max(samples, num_shards)
    ranks = [Order(samples, batch_size, 4, rank, num_shards, shuffle) for rank in range(num_shards)]
    assert len({rank.batches for rank in ranks}) == 1, "a rank with more batches would wait forever"
    seen = np.concatenate([whole_epoch(rank, 1) for rank in ranks])
    times = np.bincount(seen, minlength=samples)
    assert times.min() == 1
    most = sum(times) - samples
    assert most < num_shards if shuffle else most == 0


def test_epochs_are_shuffled_differently_and_repeatably():
    epochs = Order(100, 10, seed=1)
    first, second = whole_epoch(epochs, 0), whole_epoch(epochs, 1)
    assert (first != second).any() and (first != np.arange(100)).any()
    assert (first == whole_epoch(Order(100, 10, seed=1), 0)).all()
    assert (first != whole_epoch(Order(100, 10, seed=2), 0)).any()


def test_the_order_does_not_depend_on_the_batch_size_or_the_ranks():
    whole = whole_epoch(Order(24, 24, seed=1), 3)
    assert (whole == whole_epoch(Order(24, 5, seed=1), 3)).all()
    dealt = [whole_epoch(Order(24, 5, 1, rank, 2), 3) for rank in (0, 1)]
    assert (whole == np.stack(dealt, 1).ravel()).all()


def test_unshuffled_batches_are_in_order_and_filled_with_the_last_sample():
    epochs = Order(7, 4, shuffle=False)
    assert epochs.batch(0, 1).tolist() == [4, 5, 6, 6]


def test_a_batch_larger_than_the_set_is_filled_from_its_start():
    batch = Order(3, 8, seed=0).batch(0, 0)
    assert batch[:3].tolist() == batch[3:6].tolist() and len(set(batch[:3])) == 3


def test_iterations_count_over_the_epochs():
    epochs = Order(10, 4)
    assert [epochs.locate(i) for i in (0, 2, 3, 7)] == [(0, 0), (0, 2), (1, 0), (2, 1)]


def test_a_readers_samples_are_numbered_across_the_ranks():
    ranks = [ReaderOrder(10, 3, 0, rank, 2) for rank in (0, 1)]
    numbers = np.concatenate([rank.batch(0, place) for rank in ranks for place in (0, 1)])
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 0), "batch_size is a whole number, 1 or more, not 0"),
        ((10, 2, -1), "seed is a whole number, 0 or more, not -1"),
        ((10, 2, 0, 2, 2), "shard 2 is not one of 2"),
        ((1, 2, 0, 0, 2), "1 samples cannot be dealt to 2 shards"),
    ],
)
def test_impossible_numbers(arguments: tuple[int, ...], message: str):
    with pytest.raises(ValueError, match=message):
        Order(*arguments)


@pytest.fixture
def gpus(monkeypatch):
    """As if there were four GPUs, of which torch's current one is number 2."""
    monkeypatch.setattr(order, "gpu_found", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)


@pytest.mark.parametrize(
    ("device", "device_id", "number"),
    [
        ("cpu", None, None),
        ("cpu", 1, None),
        ("cuda", None, 2),
        ("gpu", None, 2),
        ("auto", None, 2),
        ("auto", 0, 0),
        ("cuda:1", None, 1),
        ("cuda:3", 3, 3),
        (torch.device("cuda", 1), None, 1),
    ],
)
def test_which_gpu(gpus, device, device_id, number):
    assert gpu_number(device, device_id) == number


def test_a_rank_takes_its_own_gpu_also_before_set_device(gpus, as_rank, monkeypatch):
    as_rank(1, 4)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert gpu_number("cuda") == 1
    assert gpu_number("cuda", 3) == gpu_number("cuda:3") == 3


def test_a_rank_that_sees_its_own_gpu_only_takes_it(gpus, as_rank, monkeypatch):
    as_rank(1, 4)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert gpu_number("cuda") == 0


def test_auto_is_the_cpu_where_no_gpu_is_found(monkeypatch):
    monkeypatch.setattr(order, "gpu_found", lambda: False)
    assert gpu_number("auto") is None


@pytest.mark.parametrize("named", [gpu_number, torch_device])
@pytest.mark.parametrize(
    "device", ["tpu", "cpu:1", "auto:1", "cuda:", "cuda:x", "cuda:-1", "", None]
)
def test_unknown_devices_are_refused(device, named):
    with pytest.raises(ValueError, match="device is one of auto, cpu, cuda, or cuda:1 …, not"):
        named(device)


@pytest.mark.parametrize(
    ("device", "device_id", "name"),
    [
        ("cpu", None, "cpu"),
        (torch.device("cpu"), None, "cpu"),
        ("auto", None, "cuda"),
        ("gpu", 1, "cuda:1"),
        ("cuda:3", 3, "cuda:3"),
        (torch.device("cuda", 2), None, "cuda:2"),
    ],
)
def test_torchs_name_of_a_device(gpus, device, device_id, name):
    assert torch_device(device, device_id) == name


def test_a_gpu_that_is_not_there_is_refused(gpus, monkeypatch):
    with pytest.raises(ValueError, match="there is no GPU 4: torch finds 4, counted from 0"):
        torch_device("cuda:4")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert torch_device("auto") == "cpu"
    with pytest.raises(ValueError, match="device='cuda', but torch finds no CUDA GPU: take"):
        torch_device("cuda")


def test_two_different_numbers_are_refused(gpus):
    with pytest.raises(ValueError, match="'cuda:1' and device_id=0 are different GPUs"):
        gpu_number("cuda:1", 0)
