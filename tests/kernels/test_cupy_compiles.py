"""The way a kernel takes through CuPy on a user's machine, up to where the driver loads it.

CuPy adds options and folders of headers of its own, and refuses to compile without the headers of
the CUDA runtime: compiling with NVRTC alone does not show that.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harness.host_kernels import KERNELS

from ddas_gpu.ops import cuda

core = pytest.importorskip("cupy._core.core", reason="needs CuPy")
compiler = pytest.importorskip("cupy.cuda.compiler", reason="needs CuPy")
pathfinder = pytest.importorskip("cuda.pathfinder", reason="needs CuPy 14.1")

NAMES = sorted(path.stem for path in KERNELS.glob("*.cu"))
SETUP = Path(__file__).resolve().parents[2] / "setup.py"


class Loaded(compiler.function.Module):
    """A module of CuPy that keeps the binary: loading it needs a driver."""

    def load(self, binary: bytes) -> None:
        self.binary = binary


@pytest.fixture
def options(monkeypatch, tmp_path) -> list[tuple[str, ...]]:
    """What NVRTC was asked; nothing comes from the user's cache of kernels."""
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiler.function, "Module", Loaded)
    for name in ("_get_arch_for_options_for_nvrtc", "_get_nvrtc_version"):
        remembered = getattr(compiler, name)  # for each device, which asks the driver
        function = getattr(remembered, "__wrapped__", remembered)
        monkeypatch.setattr(compiler, name, function)
    monkeypatch.setattr(compiler, "_kernel_cache_backend", compiler._DiskKernelCacheBackend())
    asked, compile_program = [], compiler._NVRTCProgram.compile

    def recorded(self, options=(), log_stream=None):
        asked.append(options)
        return compile_program(self, options, log_stream)

    monkeypatch.setattr(compiler._NVRTCProgram, "compile", recorded)
    return asked


def compiled(name: str, architecture: str) -> bytes:
    """As RawModule.get_function does, for a given device."""
    cuda.module.cache_clear()
    module = cuda.module(name)
    return core.compile_with_cache(
        module.code,
        module.options,
        arch=architecture,
        prepend_cupy_headers=False,
        backend=module.backend,
    ).binary


@pytest.mark.parametrize("architecture", ["75", "90", "120"])
@pytest.mark.parametrize("name", NAMES)
def test_cupy_compiles_every_kernel_to_a_binary(name, architecture, options):
    binary = compiled(name, architecture)
    assert binary.startswith(b"\x7fELF") and name.encode() in binary
    assert f"-arch=sm_{architecture}" in options[-1]
    assert set(cuda.OPTIONS) < set(options[-1])


def test_the_headers_come_from_a_package_that_the_extras_install(options):
    compiled("solarize", "75")
    headers = Path(pathfinder.find_nvidia_header_directory("cudart"))
    assert f"-I{headers}" in options[-1]
    assert (headers / "cuda_runtime.h").exists()
    assert "site-packages" in headers.parts
    for package in ("nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"):
        assert re.search(rf'"{package}>=', SETUP.read_text())


def test_without_headers_the_user_reads_one_sentence(monkeypatch):
    """CuPy raises a RuntimeError then, whose text ours has at its end."""

    class Module:
        def get_function(self, name):
            raise RuntimeError("Failed to find CUDA headers. Please install …")

    monkeypatch.setattr(cuda, "module", lambda name: Module())
    with pytest.raises(cuda.DeviceError, match=r"ddas_gpu\[cuda12\].*Failed to find CUDA headers"):
        cuda.function("solarize")
