"""What all tests share: real images, the GPU skip, repeatable random examples."""

from __future__ import annotations

import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent

# Set before torch is first imported, and inherited by the commands that tests start. Where tests
# run side by side, the other core has another test.
os.environ.setdefault("OMP_NUM_THREADS", "1" if "PYTEST_XDIST_WORKER" in os.environ else "2")

# A shell starts what runs in its background with Ctrl-C ignored, and children would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples take as long as the machine is busy: a deadline would only make tests fail by chance.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Not item.keywords, which has the names of folders, too.
    needing_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if needing_gpu and not _gpu_found():
        for item in needing_gpu:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU with CuPy and torch found"))


def _gpu_found() -> bool:
    try:
        import cupy
        import torch
    except ImportError:
        return False
    return cupy.is_available() and torch.cuda.is_available()


@pytest.fixture(scope="session", autouse=True)
def freed_memory_goes_back() -> Iterator[None]:
    """Commands that run in this process do not make it keep the memory of the largest test."""
    from ddas_gpu.cli import shell

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell, "keep_freed_memory", lambda: None)
        yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For networks and batches so small that a second thread only waits for a busy core."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the real data sets: $DDAS_SHARED, or shared/data beside the repository."""
    folder = Path(os.environ.get("DDAS_SHARED") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is missing; set DDAS_SHARED to its place")
    return folder


@pytest.fixture(scope="session")
def imagenet_root(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few ImageNet photographs as they lie on disk: train/ with a folder a class."""
    return _unpacked(shared_data / "imagenet_sample.tar", tmp_path_factory)


@pytest.fixture(scope="session")
def coco_root(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """COCO's first 128 images as they lie on disk: annotations/, train2017/, val2017/."""
    return _unpacked(shared_data / "coco128.tar", tmp_path_factory)


@pytest.fixture(scope="session")
def imagenet_images(imagenet_root: Path) -> list[np.ndarray]:
    """Six decoded photographs, uint8 HWC, each of its own size."""
    return _decoded(imagenet_root, count=6)


@pytest.fixture(scope="session")
def coco_images(coco_root: Path) -> list[np.ndarray]:
    """Six decoded photographs, uint8 HWC, each of its own size."""
    return _decoded(coco_root, count=6)


def _unpacked(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not archive.is_file():
        pytest.skip(f"no real data: {archive} is missing")
    folder = tmp_path_factory.mktemp(archive.name.partition(".")[0])
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


def _decoded(root: Path, count: int) -> list[np.ndarray]:
    files = sorted(path for path in root.rglob("*") if path.suffix.lower() in {".jpg", ".jpeg"})
    chosen = files[:: max(1, len(files) // count)][:count]
    return [np.asarray(Image.open(path).convert("RGB")) for path in chosen]


@pytest.fixture(scope="session")
def kernel_folder() -> Path:
    """The CUDA and C++ sources."""
    return ROOT / "kernels"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of five smooth images, of different sizes."""
    root = tmp_path_factory.mktemp("folder")
    generator = np.random.default_rng(3)
    for label in range(3):
        (root / f"class{label}").mkdir()
        for number in range(5):
            small = Image.fromarray(generator.integers(0, 256, (5, 6, 3), np.uint8))
            size = (60 + 7 * number, 50 + 9 * label)
            small.resize(size, Image.Resampling.BICUBIC).save(
                root / f"class{label}" / f"{number}.{'jpg' if number % 2 else 'png'}", quality=95
            )
    return root


@pytest.fixture(scope="session")
def arrays() -> tuple[np.ndarray, np.ndarray]:
    """22 small images that are all different, with their number as the label."""
    images = np.random.default_rng(7).integers(0, 256, (22, 12, 10, 3), np.uint8)
    return images, np.arange(22)
