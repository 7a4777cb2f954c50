"""Which back end runs where, decided without a GPU: CuPy and the compiler come and go."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ddas_gpu import SearchSpace, augment
from ddas_gpu.ops import apply_op, backends

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 9, 8, 3), np.uint8)
SPACE = SearchSpace.of(["Identity", "FlipLR", "Invert"], depth=2)


@pytest.fixture(autouse=True)
def undecided():
    """Every test decides anew."""
    backends.forget()
    yield
    backends.forget()


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("DDAS_CACHE", str(tmp_path))
    backends.library.cache_clear()
    yield
    backends.library.cache_clear()


def give_cupy(monkeypatch, found: bool) -> None:
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(is_available=lambda: found))


def test_a_gpu_with_cupy_runs_the_kernels(monkeypatch):
    give_cupy(monkeypatch, found=True)
    assert backends.best_on("cuda") == ("cuda", None)


@pytest.mark.parametrize(("version", "extra"), [("12.8", "cuda12"), ("13.0", "cuda13")])
def test_a_gpu_without_cupy_runs_torch_and_says_what_to_install(monkeypatch, version, extra):
    monkeypatch.setitem(sys.modules, "cupy", None)  # import cupy raises
    monkeypatch.setattr(torch.version, "cuda", version)
    backend, reason = backends.best_on("cuda")
    assert backend == "kornia"
    assert "PyTorch on the GPU" in reason and f"pip install 'ddas_gpu[{extra}]'" in reason
    assert "\n" not in reason


def test_a_cupy_that_finds_no_gpu_is_as_good_as_none(monkeypatch):
    give_cupy(monkeypatch, found=False)
    backend, reason = backends.best_on("cuda")
    assert backend == "kornia" and "CuPy finds no GPU" in reason


def test_the_reason_is_said_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    said = []
    for _ in range(2):
        backends.tell("cuda", said.append)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert backends.choose_backend("auto", "cuda") == "kornia"


def test_nothing_is_said_where_the_kernels_run():
    said = []
    backends.tell("cpu", said.append)
    assert not said and backends.choose_backend("auto", "cpu") == "cpu"


def test_without_a_compiler_one_warning_and_then_torch(no_compiler):
    with pytest.warns(RuntimeWarning, match="'no-such-compiler' was not found"):
        got = apply_op(IMAGES, "Invert")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = augment(torch.from_numpy(IMAGES), [2, 1], SPACE)
    assert (got == 255 - IMAGES).all()
    assert (again.numpy() == (255 - IMAGES)[:, :, ::-1]).all()
