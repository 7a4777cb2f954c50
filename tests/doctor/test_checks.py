"""Every check ends in one sentence, and finds what it is there for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ddas_gpu.doctor import decoders, first_steps, machine, pictures, printing, speed
from ddas_gpu.doctor.checks import (
    FAILED,
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

CHECKS = all_checks()


def outcome(error: Exception | None) -> tuple[str, str]:
    def checked(machine: Machine) -> Finding:
        if error is not None:
            raise error
        return Finding("fine")

    result = Check("a check", checked).run(Machine(Path(), "no GPU"))
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


def test_the_file_does_not_name_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    text = "cannot open /home/somebody/.cache/file"
    result = Result("a", "a", FAILED, text, 0.0, {"path": "/home/somebody/c++"})
    (written,) = json.loads(printing.to_bytes([result], 1.0))["checks"]
    assert written["text"] == "cannot open ~/.cache/file" and written["facts"] == {"path": "~/c++"}


def test_the_summary_counts() -> None:
    results = [Result("a", "a", status, "", 0.0, {}) for status in (OK, OK, FAILED, UNCHECKED)]
    assert printing.summary(results, 12.3) == (
        "✓ 2 passed, ✗ 1 failed, – 1 could not be checked here; 12 s"
    )
    assert not printing.passed(results) and printing.passed(results[:2])


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
    result = CHECKS["decoders_on_cpu"].run(here)
    assert result.status == status and text in result.text


def test_losses_that_are_not_finite(monkeypatch, here) -> None:
    from ddas_gpu.search.algorithm import Search

    metrics = {"clean_loss": float("nan"), "validation_loss": 1.0, "seconds": {}}
    monkeypatch.setattr(Search, "step", lambda search: metrics)
    result = CHECKS["search_step"].run(here)
    assert result.status == FAILED and "not finite: nan" in result.text


def test_a_batch_on_the_wrong_device(monkeypatch, tmp_path) -> None:
    batch = [(torch.zeros(4, 3, 64, 64), torch.zeros(4))]
    monkeypatch.setattr(first_steps, "open_loader", lambda *args, **settings: batch)
    result = CHECKS["loader_batch"].run(Machine(tmp_path, no_gpu=None))
    assert result.status == FAILED and "is on cpu, not on cuda" in result.text


def test_the_bandwidth_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"memoryClockRate": 2_619_000, "memoryBusWidth": 5120}  # an H100's
    runtime = SimpleNamespace(getDeviceProperties=lambda number: properties)
    fake = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", fake)
    assert speed.peak_bandwidth() == pytest.approx(3352, abs=1)
    properties.clear()
    assert speed.peak_bandwidth() is None
