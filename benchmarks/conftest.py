"""Fixtures of all benchmarks: the tables, printed at the end, and the photographs."""

from __future__ import annotations

import io
import os
import platform
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest
import side_by_side
import torch
from instructions import Counter, missing
from PIL import Image

from ddas_gpu.ops import OPS

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "ddas_gpu",
    "torch",
    "numpy",
    "pillow",
    "albumentations",
    "kornia",
    "nvidia-dali-cuda130",
)


@dataclass
class Table:
    """Rows of cells under a title, with a sentence or two on how they were made."""

    title: str
    columns: tuple[str, ...]
    note: str = ""
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        self.rows.append(tuple(str(cell) for cell in cells))

    def markdown(self) -> str:
        lines = [self.columns, tuple("---" for _ in self.columns), *self.rows]
        body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"## {self.title}\n\n{self.note}\n\n{body}\n"

    def text(self) -> str:
        widths = [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
            for cells in (self.columns, *self.rows)
        ]
        return "\n".join([self.title, *lines])


class Tables(dict):
    """Tables by title, in the order of their first use."""

    def get_or_make(self, title: str, columns: tuple[str, ...], note: str = "") -> Table:
        return self.setdefault(title, Table(title, columns, note))


TABLES = pytest.StashKey[Tables]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", metavar="FILE", help="write the tables to FILE, as Markdown")
    parser.addoption(
        "--device",
        choices=tuple(side_by_side.CLOCKS),
        default="cpu",
        help="where the op bank, the search and the pipelines run, and the peers that can",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TABLES] = Tables()
    device = config.getoption("--device")
    if device == "cuda" and not torch.cuda.is_available():
        raise pytest.UsageError("--device cuda needs a GPU, and torch sees none")
    side_by_side.clock = side_by_side.CLOCKS[device]


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> str:
    """ "cpu" or "cuda"."""
    return pytestconfig.getoption("--device")


@pytest.fixture(scope="session")
def tables(pytestconfig: pytest.Config) -> Tables:
    return pytestconfig.stash[TABLES]


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    tables = config.stash[TABLES]
    for table in tables.values():
        terminalreporter.write_line(f"\n{table.text()}")
    if tables and config.getoption("--results"):
        parts = [f"# Results\n\n{machine()}\n", *(table.markdown() for table in tables.values())]
        Path(config.getoption("--results")).write_text("\n".join(parts), "utf-8")


def machine() -> str:
    """Return the processor and the package versions."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        cpu = next(names, cpu)
    cores = len(os.sched_getaffinity(0))
    packages = ", ".join(f"{name} {found}" for name in PACKAGES if (found := _version(name)))
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{cpu}, {cores} cores{gpu}; Python {platform.python_version()}, {packages}."


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@pytest.fixture(scope="session")
def counter(tmp_path_factory) -> Counter:
    """Counts the instructions of ops."""
    if missing() is not None:
        pytest.skip(missing())
    return Counter(tmp_path_factory.mktemp("counter"))


@pytest.fixture(scope="session")
def scalar_instructions(counter) -> dict[str, float]:
    """The instructions per pixel of every op, at 224 px and without vector units."""
    return {name: counter.a_pixel(name, 224, "scalar") for name in OPS}


def shared(name: str) -> Path:
    """Return the path of an archive of real data, or None."""
    return Path(os.environ.get("DDAS_SHARED") or ROOT.parent / "shared" / "data") / name


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory) -> Callable[[str], Path]:
    """Return the unpacked folder of an archive of real data; skip if there is none."""

    @lru_cache
    def unpack(name: str) -> Path:
        archive = shared(name)
        if not archive.is_file():
            pytest.skip(f"no real data: {archive} is missing; set DDAS_SHARED to its place")
        folder = tmp_path_factory.mktemp(name.partition(".")[0])
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        return folder

    return unpack


@pytest.fixture(scope="session")
def photographs() -> list[Image.Image]:
    """32 ImageNet photographs; without the data, noise over ramps."""
    archive = shared("imagenet_sample.tar")
    if not archive.is_file():
        rng = np.random.default_rng(0)
        ramp = np.linspace(0, 200, 300 * 400 * 3).reshape(300, 400, 3)
        return [
            Image.fromarray((ramp + rng.integers(0, 56, ramp.shape)).astype(np.uint8))
            for _ in range(32)
        ]
    images = []
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and len(images) < 32:
                images.append(Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB"))
    return images
