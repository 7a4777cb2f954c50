"""A machine without a GPU, and quick measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddas_gpu.doctor import kernels, speed
from ddas_gpu.doctor.machine import Machine


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    """A machine without a GPU."""
    return Machine(tmp_path, "no GPU that torch can use")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "SECONDS", 0.01)
    monkeypatch.setattr(speed, "BATCH", 4)
    monkeypatch.setattr(speed, "FILES", {"cpu": 4, "cuda": 4})
    monkeypatch.setattr(kernels, "ARCHITECTURES", (75,))
