"""Which device a word means: the same for pipelines and loaders."""

from __future__ import annotations

import pytest
import torch

from ddas_gpu.pipelines import devices
from ddas_gpu.pipelines.devices import gpu_number, torch_device


@pytest.fixture
def gpus(monkeypatch):
    """As if there were four GPUs, of which torch's current one is number 2."""
    monkeypatch.setattr(devices, "gpu_found", lambda: True)
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
    monkeypatch.setattr(devices, "gpu_found", lambda: False)
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
