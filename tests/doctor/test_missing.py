"""Machines that lack something, and GPUs that are not there."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ddas_gpu.doctor import bank, kernels, machine, speed
from ddas_gpu.doctor.checks import FAILED, OK, UNCHECKED, CheckFailed, all_checks
from ddas_gpu.doctor.machine import Machine
from ddas_gpu.ops import backends, cuda

CHECKS = all_checks()
CPU, GPU = "no GPU that torch can use", None


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Make imports of these modules fail."""
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def test_without_dali(monkeypatch: pytest.MonkeyPatch, here: Machine) -> None:
    hide(monkeypatch, "nvidia.dali", "nvidia.dali.fn", "nvidia.dali.types")
    for name in ("dali", "decoders_on_cpu"):
        result = CHECKS[name].run(here)
        assert result.status == UNCHECKED and 'pip install "ddas_gpu[cuda13]"' in result.text
    assert CHECKS["loader_batch"].run(here).status == OK  # with Pillow
    assert CHECKS["pipeline_speed"].run(here).status == OK


def test_without_cupy_and_a_gpu(monkeypatch: pytest.MonkeyPatch, here: Machine) -> None:
    hide(monkeypatch, "cupy", "cupy.cuda")
    for name in ("cupy", "nvrtc", "gpu_kernels"):
        result = CHECKS[name].run(here)
        assert result.status == UNCHECKED and "only GPUs need: pip install" in result.text


def test_a_gpu_without_cupy(monkeypatch: pytest.MonkeyPatch, here: Machine) -> None:
    hide(monkeypatch, "cupy")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert machine.reason_without_gpu() == 'CuPy is missing: pip install "ddas_gpu[cuda12]"'
    result = CHECKS["cupy"].run(here)
    assert result.status == FAILED and 'pip install "ddas_gpu[cuda12]"' in result.text


def test_a_gpu_that_cupy_cannot_use(monkeypatch: pytest.MonkeyPatch, here: Machine) -> None:
    fake = SimpleNamespace(is_available=lambda: False, __version__="14.0.0")
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert machine.reason_without_gpu() == "no GPU that CuPy can use"
    assert CHECKS["cupy"].run(here).status == FAILED
    fake.is_available = lambda: 1 / 0
    assert machine.reason_without_gpu().startswith("CuPy does not work here: ZeroDivisionError")
    assert CHECKS["cupy"].run(here).status == FAILED
    fake.is_available = lambda: True
    assert machine.reason_without_gpu() is None
    assert CHECKS["cupy"].run(here).status == OK


@pytest.mark.parametrize(("no_gpu", "status"), [(CPU, FAILED), (GPU, UNCHECKED)])
def test_without_a_compiler(monkeypatch, tmp_path, no_gpu, status) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    backends.library.cache_clear()
    somewhere = Machine(tmp_path, no_gpu)
    result = CHECKS["compiler"].run(somewhere)
    assert result.status == status and "install g++ or set CXX" in result.text
    for name in ("cpu_kernels", "bank_on_cpu"):
        result = CHECKS[name].run(somewhere)
        assert result.status == UNCHECKED and "'no-such-compiler' was not found" in result.text


def test_a_cache_that_cannot_be_written(monkeypatch, here, tmp_path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for variable in ("DDAS_CACHE", "CUPY_CACHE_DIR"):
        with monkeypatch.context() as changed:
            changed.setenv(variable, str(tmp_path / "file" / "cache"))
            result = CHECKS["caches"].run(here)
            assert result.status == FAILED and f"set {variable} to a folder" in result.text


def test_a_kernel_that_does_not_compile(monkeypatch, here) -> None:
    pytest.importorskip("cupy")
    monkeypatch.setattr(cuda, "OPTIONS", ("--std=c++17",))  # without the primitives
    result = CHECKS["gpu_kernels"].run(here)
    assert result.status == FAILED and "does not compile for sm_75" in result.text


def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(
        name="NVIDIA H100", total_memory=85e9, major=9, minor=0, multi_processor_count=132
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: properties)


def test_devices_are_named(monkeypatch, tmp_path) -> None:
    fake_gpu(monkeypatch)
    result = CHECKS["devices"].run(Machine(tmp_path, GPU))
    assert result.text == "NVIDIA H100, 85 GB, sm_90; NVIDIA H100, 85 GB, sm_90"
    assert result.facts["devices"][0]["compute_capability"] == "90"


@pytest.mark.parametrize(
    ("version", "text"), [(None, "a build for the CPU"), ("13.0", "needs a driver for CUDA 13.0")]
)
def test_a_gpu_that_torch_cannot_use(monkeypatch, here, version, text) -> None:
    monkeypatch.setattr(machine, "driver_version", lambda: "580.65")
    monkeypatch.setattr(torch.version, "cuda", version)
    assert CHECKS["driver"].run(here).text == "580.65"
    result = CHECKS["devices"].run(here)
    assert result.status == FAILED and text in result.text


def test_the_driver_is_asked_for(monkeypatch, tmp_path, here) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 580.65.06\necho 580.65.06\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert CHECKS["driver"].run(here).text == "580.65.06"
    command.write_text("#!/bin/sh\necho no devices; exit 9\n")
    assert CHECKS["driver"].run(here).status == UNCHECKED


@pytest.mark.parametrize("name", ["bank_on_gpu", "gpu_equals_cpu", "decoders_on_gpu"])
def test_checks_of_a_gpu_need_one(name: str, here: Machine) -> None:
    assert (CHECKS[name].run(here).status, CHECKS[name].run(here).text) == (UNCHECKED, CPU)


def test_kernels_for_this_device(monkeypatch, tmp_path) -> None:
    compiled = SimpleNamespace(num_regs=40, local_size_bytes=0, shared_size_bytes=4256)
    monkeypatch.setattr(cuda, "function", lambda name: compiled)
    result = CHECKS["gpu_kernels"].run(Machine(tmp_path, GPU))
    assert (
        result.text
        == f"{len(kernels.names())} kernels, at most 40 registers per thread, 0 bytes spilled"
    )
    assert set(result.facts["kernels"]) == set(kernels.names())


def test_tensors_are_compared_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of a GPU, with tensors on the CPU in its place."""
    monkeypatch.setattr(bank, "on_device", lambda images, device: torch.tensor(images))
    assert "equal" in bank.against_pillow("cuda").text
    assert "equal" in bank.same_on("cpu", "cuda").text


def test_speeds_are_measured_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    waits = []
    monkeypatch.setattr(speed, "on_device", lambda images, device: torch.tensor(images))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(None))
    monkeypatch.setattr(speed, "peak_bandwidth", lambda: 3352.0)
    result = CHECKS["bank_speed"].run(Machine(tmp_path, GPU))
    assert result.status == OK and result.text.endswith("on cuda") and waits
    result = CHECKS["bandwidth"].run(Machine(tmp_path, GPU))
    assert result.status == OK and result.text.endswith("the device 3352 GB/s")
    assert result.facts["op GB/s"] > 0 and result.facts["copy GB/s"] > 0


def test_two_devices_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_device(images: np.ndarray, device: str) -> np.ndarray:
        return images if device == "cpu" else images ^ 1

    monkeypatch.setattr(bank, "on_device", on_device)
    with pytest.raises(CheckFailed, match="a batch of policies on cuda differs from cpu in"):
        bank.same_on("cpu", "cuda")
