"""`ddas doctor` runs to its end, finds what is broken, and says what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import ddas_gpu
from ddas_gpu.__main__ import main
from ddas_gpu.doctor import bank, decoders, first_steps, kernels, machine, pictures, printing, speed
from ddas_gpu.doctor.checks import (
    FAILED,
    MARKS,
    OK,
    UNCHECKED,
    CannotCheck,
    Check,
    CheckFailed,
    Finding,
    Result,
    all_checks,
    check,
)
from ddas_gpu.doctor.machine import Machine
from ddas_gpu.ops import cuda, native

CHECKS = all_checks()
CPU, GPU = "no GPU that torch can use", None


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    """A machine without a GPU."""
    return Machine(tmp_path, CPU)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "SECONDS", 0.01)
    monkeypatch.setattr(speed, "BATCH", 4)
    monkeypatch.setattr(speed, "FILES", 4)
    monkeypatch.setattr(kernels, "ARCHITECTURES", (75,))


def run(name: str, machine: Machine) -> Result:
    return CHECKS[name].run(machine)


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Make imports of these modules fail."""
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


# --- the command ---


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess, Path]:
    """The command as users run it, in a process of its own."""
    file = tmp_path_factory.mktemp("doctor") / "doctor.json"
    temporary = tmp_path_factory.mktemp("temporary")
    command = [sys.executable, "-m", "ddas_gpu", "doctor", "--json", str(file)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert not list(temporary.rglob("*.jpg")), "files of the checks are left"
    return done, file


def test_it_runs_to_its_end(finished) -> None:
    done, _ = finished
    assert done.returncode == 0, done.stdout + done.stderr
    rows = done.stdout.splitlines()[: len(CHECKS)]
    for line, one in zip(rows, CHECKS.values(), strict=True):
        assert line[0] in MARKS.values() and line[2:].startswith(one.title)
        assert len(line.split(one.title, 1)[1].strip()) > 2, f"no words about {one.title}"
    assert "✗" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_the_file_has_everything(finished) -> None:
    _, file = finished
    content = json.loads(file.read_text("utf-8"))
    assert content["format"] == printing.FORMAT and content["version"] == printing.VERSION
    assert content["ddas_gpu"] == ddas_gpu.__version__ and content["passed"] is True
    assert [one["name"] for one in content["checks"]] == list(CHECKS)
    for one in content["checks"]:
        assert set(one) == {"name", "title", "status", "text", "seconds", "facts"}
        assert one["status"] in MARKS and isinstance(one["text"], str) and one["text"]
        assert one["seconds"] >= 0 and isinstance(one["facts"], dict)
    facts = {one["name"]: one["facts"] for one in content["checks"]}
    assert facts["versions"]["torch"] == torch.__version__
    assert facts["bank_speed"]["images per second"] > 0
    assert str(Path.home()) not in file.read_text("utf-8") or Path.home() == Path("/")
    assert list(file.parent.iterdir()) == [file]  # no temporary file is left


def test_wrong_flags(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    assert main(["doctor", "--json", str(tmp_path / "nowhere" / "file.json")]) == 2
    assert main(["doctor", "--json", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("cannot be written") == 2
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--jsn", "x"])
    assert end.value.code == 2


def test_a_broken_op_ends_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    run_kernels, images = native.run, []

    def sabotaged(pictures, chains, source, target) -> None:
        run_kernels(pictures, chains, source, target)
        last = pictures.array[-1]
        size = 3 * int(last["height"]) * int(last["width"])
        memory = np.ctypeslib.as_array(
            (np.ctypeslib.ctypes.c_uint8 * size).from_address(target + int(last["target"]))
        )
        memory[size // 2] ^= 1  # one bit of one pixel
        images.append(size)

    monkeypatch.setattr(native, "run", sabotaged)
    file = tmp_path / "doctor.json"
    assert main(["doctor", "--json", str(file)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("✗ op")]
    assert "Identity None differs from Pillow in 1 of " in line and images
    content = json.loads(file.read_text("utf-8"))
    assert content["passed"] is False
    assert [one["name"] for one in content["checks"] if one["status"] == FAILED] == ["bank_on_cpu"]


# --- checks in general ---


def outcome(error: Exception | None) -> tuple[str, str]:
    def checked(machine: Machine) -> Finding:
        if error is not None:
            raise error
        return Finding("fine")

    result = Check("a check", checked).run(Machine(Path(), CPU))
    return result.status, result.text


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (None, OK, "fine"),
        (CannotCheck("no GPU"), UNCHECKED, "no GPU"),
        (CheckFailed("it is\nwrong"), FAILED, "it is wrong"),
        (KeyError("name"), FAILED, "KeyError: 'name'"),
        (RuntimeError("[/opt/dali.cc:3]\n  no"), FAILED, "RuntimeError: [/opt/dali.cc:3] no"),
        (ZeroDivisionError(), FAILED, "ZeroDivisionError"),
        (FileNotFoundError(2, "No such file", "x"), FAILED, "No such file: x"),
    ],
)
def test_every_error_is_one_sentence(error, status, text) -> None:
    assert outcome(error) == (status, text)


def test_logs_are_cut() -> None:
    _, text = outcome(CheckFailed("log " * 500))
    assert len(text) <= 300 and text.endswith("…")


def test_a_check_has_a_name_of_its_own() -> None:
    with pytest.raises(ValueError, match="'versions' is declared twice"):
        check("again")(machine.versions)


def test_the_summary_counts() -> None:
    results = [Result("a", "a", status, "", 0.0, {}) for status in (OK, OK, FAILED, UNCHECKED)]
    assert printing.summary(results, 12.3) == (
        "✓ 2 passed, ✗ 1 failed, – 1 could not be checked here; 12 s"
    )
    assert not printing.passed(results) and printing.passed(results[:2])


# --- what is missing ---


def test_without_dali(monkeypatch: pytest.MonkeyPatch, here: Machine) -> None:
    hide(monkeypatch, "nvidia.dali", "nvidia.dali.fn", "nvidia.dali.types")
    for name in ("dali", "decoders_on_cpu"):
        result = run(name, here)
        assert result.status == UNCHECKED and 'pip install "ddas_gpu[cuda13]"' in result.text
    assert run("loader_batch", here).status == OK  # with Pillow
    assert run("pipeline_speed", here).status == OK


def test_without_cupy_and_a_gpu(monkeypatch: pytest.MonkeyPatch, here: Machine) -> None:
    hide(monkeypatch, "cupy", "cupy.cuda")
    for name in ("cupy", "nvrtc", "gpu_kernels"):
        result = run(name, here)
        assert result.status == UNCHECKED and "only GPUs need: pip install" in result.text


def test_a_gpu_without_cupy(monkeypatch: pytest.MonkeyPatch, here: Machine) -> None:
    hide(monkeypatch, "cupy")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert machine.reason_without_gpu() == 'CuPy is missing: pip install "ddas_gpu[cuda12]"'
    result = run("cupy", here)
    assert result.status == FAILED and 'pip install "ddas_gpu[cuda12]"' in result.text


def test_a_gpu_that_cupy_cannot_use(monkeypatch: pytest.MonkeyPatch, here: Machine) -> None:
    fake = SimpleNamespace(is_available=lambda: False, __version__="14.0.0")
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert machine.reason_without_gpu() == "no GPU that CuPy can use"
    assert run("cupy", here).status == FAILED
    fake.is_available = lambda: True
    assert machine.reason_without_gpu() is None
    assert run("cupy", here).status == OK


@pytest.mark.parametrize(("no_gpu", "status"), [(CPU, FAILED), (GPU, UNCHECKED)])
def test_without_a_compiler(monkeypatch, tmp_path, no_gpu, status) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    native.library.cache_clear()
    somewhere = Machine(tmp_path, no_gpu)
    result = run("compiler", somewhere)
    assert result.status == status and "install g++ or set CXX" in result.text
    for name in ("cpu_kernels", "bank_on_cpu"):
        result = run(name, somewhere)
        assert result.status == UNCHECKED and "'no-such-compiler' was not found" in result.text


def test_a_cache_that_cannot_be_written(monkeypatch, here, tmp_path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for variable in ("DDAS_CACHE", "CUPY_CACHE_DIR"):
        with monkeypatch.context() as changed:
            changed.setenv(variable, str(tmp_path / "file" / "cache"))
            result = run("caches", here)
            assert result.status == FAILED and f"set {variable} to a folder" in result.text


def test_a_kernel_that_does_not_compile(monkeypatch, here) -> None:
    pytest.importorskip("cupy")
    monkeypatch.setattr(cuda, "OPTIONS", ("--std=c++17",))  # without the primitives
    result = run("gpu_kernels", here)
    assert result.status == FAILED and "does not compile for sm_75" in result.text


# --- GPUs that are not there ---


def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(
        name="NVIDIA H100", total_memory=85e9, major=9, minor=0, multi_processor_count=132
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: properties)


def test_devices_are_named(monkeypatch, tmp_path) -> None:
    fake_gpu(monkeypatch)
    result = run("devices", Machine(tmp_path, GPU))
    assert result.text == "NVIDIA H100, 85 GB, sm_90; NVIDIA H100, 85 GB, sm_90"
    assert result.facts["devices"][0]["compute_capability"] == "90"


@pytest.mark.parametrize(
    ("version", "text"), [(None, "a build for the CPU"), ("13.0", "needs a driver for CUDA 13.0")]
)
def test_a_gpu_that_torch_cannot_use(monkeypatch, here, version, text) -> None:
    monkeypatch.setattr(machine, "driver_version", lambda: "580.65")
    monkeypatch.setattr(torch.version, "cuda", version)
    assert run("driver", here).text == "580.65"
    result = run("devices", here)
    assert result.status == FAILED and text in result.text


def test_the_driver_is_asked_for(monkeypatch, tmp_path, here) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 580.65.06\necho 580.65.06\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert run("driver", here).text == "580.65.06"
    command.write_text("#!/bin/sh\necho no devices; exit 9\n")
    assert run("driver", here).status == UNCHECKED


@pytest.mark.parametrize("name", ["bank_on_gpu", "gpu_equals_cpu", "decoders_on_gpu"])
def test_checks_of_a_gpu_need_one(name: str, here: Machine) -> None:
    assert (run(name, here).status, run(name, here).text) == (UNCHECKED, CPU)


def test_kernels_for_this_device(monkeypatch, tmp_path) -> None:
    compiled = SimpleNamespace(num_regs=40, local_size_bytes=0, shared_size_bytes=4256)
    monkeypatch.setattr(cuda, "function", lambda name: compiled)
    result = run("gpu_kernels", Machine(tmp_path, GPU))
    assert result.text == "5 kernels, at most 40 registers per thread, 0 bytes spilled"
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
    result = run("bank_speed", Machine(tmp_path, GPU))
    assert result.status == OK and result.text.endswith("on cuda") and waits
    result = run("bandwidth", Machine(tmp_path, GPU))
    assert result.status == OK and result.text.endswith("the device 3352 GB/s")
    assert result.facts["op GB/s"] > 0 and result.facts["copy GB/s"] > 0


def test_two_devices_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_device(images: np.ndarray, device: str) -> np.ndarray:
        return images if device == "cpu" else images ^ 1

    monkeypatch.setattr(bank, "on_device", on_device)
    with pytest.raises(CheckFailed, match="a batch of policies on cuda differs from cpu in"):
        bank.same_on("cpu", "cuda")


# --- decoding, running, measuring ---


def test_photographs_are_repeatable_and_different() -> None:
    pictures.photograph.cache_clear()
    first = pictures.photograph(40, 50, 1)
    pictures.photograph.cache_clear()
    assert np.array_equal(first, pictures.photograph(40, 50, 1))
    assert not np.array_equal(first, pictures.photograph(40, 50, 2))
    assert first.std() > 20


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        (lambda image: image, OK, "equal"),
        (lambda image: np.where(image == image.max(), image - 3, image), OK, "by at most 3 levels"),
        (lambda image: image[::-1], FAILED, "another image"),
        (lambda image: image[1:], FAILED, "(374, 500, 3)"),
    ],
)
def test_decoders_are_compared(monkeypatch, here, change, status, text) -> None:
    def decode(encoded: bytes, device: str) -> np.ndarray:
        import io

        from PIL import Image

        return change(np.asarray(Image.open(io.BytesIO(encoded))))

    monkeypatch.setattr(decoders, "decode_with_dali", decode)
    result = run("decoders_on_cpu", here)
    assert result.status == status and text in result.text


def test_losses_that_are_not_finite(monkeypatch, here) -> None:
    from ddas_gpu.search.algorithm import Search

    metrics = {"clean_loss": float("nan"), "validation_loss": 1.0, "seconds": {}}
    monkeypatch.setattr(Search, "step", lambda search: metrics)
    result = run("search_step", here)
    assert result.status == FAILED and "not finite: nan" in result.text


def test_a_batch_on_the_wrong_device(monkeypatch, tmp_path) -> None:
    batch = [(torch.zeros(4, 3, 64, 64), torch.zeros(4))]
    monkeypatch.setattr(first_steps, "open_loader", lambda *args, **settings: batch)
    result = run("loader_batch", Machine(tmp_path, GPU))
    assert result.status == FAILED and "is on cpu, not on cuda" in result.text


def test_the_bandwidth_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"memoryClockRate": 2_619_000, "memoryBusWidth": 5120}  # an H100's
    runtime = SimpleNamespace(getDeviceProperties=lambda number: properties)
    fake = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    assert speed.peak_bandwidth() == pytest.approx(3352, abs=1)
    properties.clear()
    assert speed.peak_bandwidth() is None
