"""What this machine has: versions, driver, devices, compilers and cache folders."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path

import ddas_gpu
from ddas_gpu.doctor.checks import CannotCheck, CheckFailed, Finding, check, describe
from ddas_gpu.ops import backends

# {name: names of the distributions that provide it}
PACKAGES = {
    "torch": ("torch",),
    "numpy": ("numpy",),
    "pillow": ("pillow",),
    "kornia": ("kornia",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "dali": ("nvidia-dali-cuda130", "nvidia-dali-cuda120", "nvidia-dali-cuda110"),
}


@dataclass(frozen=True)
class Device:
    """A CUDA device as torch sees it."""

    name: str
    memory_gb: float
    compute_capability: str
    multiprocessors: int


@dataclass(frozen=True)
class Machine:
    """What the checks share."""

    folder: Path  # for their files; empty at the start
    no_gpu: str | None  # why nothing can run on a GPU; None: it can

    @property
    def device(self) -> str:
        """The device of the searches and loaders, in torch's words."""
        return "cpu" if self.no_gpu else "cuda"

    def need_gpu(self) -> None:
        """Raise CannotCheck if there is no GPU."""
        if self.no_gpu:
            raise CannotCheck(self.no_gpu)


def reason_without_gpu() -> str | None:
    """Return why the op bank cannot run on a GPU here, or None if it can."""
    import torch

    if not torch.cuda.is_available():
        return "no GPU that torch can use"
    try:
        return None if import_module("cupy").is_available() else "no GPU that CuPy can use"
    except ImportError:
        return f"CuPy is missing: {advice()}"
    except Exception as error:  # of a driver that does not fit
        return f"CuPy does not work here: {describe(error)}"


def advice() -> str:
    """Return what to install for GPUs, for the CUDA version of torch."""
    import torch

    extra = "cuda12" if (torch.version.cuda or "").startswith("12") else "cuda13"
    return f'pip install "ddas_gpu[{extra}]"'


@check("versions")
def versions(machine: Machine) -> Finding:
    import torch

    found: dict[str, str | None] = {
        "ddas_gpu": ddas_gpu.__version__,
        "python": platform.python_version(),
        **{name: _version(distributions) for name, distributions in PACKAGES.items()},
        "cuda of torch": torch.version.cuda,
    }
    system = {
        "system": platform.system(),
        "release": platform.release(),
        "processor": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
    }
    text = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    return Finding(text, {**found, **system})


def _version(distributions: tuple[str, ...]) -> str | None:
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


@check("NVIDIA driver")
def driver(machine: Machine) -> Finding:
    import torch

    version = driver_version()
    if version is None:
        found = torch.cuda.is_available()
        raise CannotCheck("nvidia-smi was not found" if found else "no NVIDIA driver is loaded")
    return Finding(version, {"version": version})


def driver_version() -> str | None:
    """Return the version of the driver, or None without one."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else None


@check("GPUs")
def devices(machine: Machine) -> Finding:
    import torch

    if not torch.cuda.is_available():
        if driver_version() is None:
            raise CannotCheck("no GPU: everything below runs on the CPU alone")
        if torch.version.cuda is None:
            raise CheckFailed(
                "there is a GPU, but this torch is a build for the CPU: install one for CUDA"
            )
        raise CheckFailed(
            f"there is a GPU, but torch cannot use it: it needs a driver for CUDA "
            f"{torch.version.cuda}"
        )
    found = [device(number) for number in range(torch.cuda.device_count())]
    texts = [f"{one.name}, {one.memory_gb:g} GB, sm_{one.compute_capability}" for one in found]
    return Finding("; ".join(texts), {"devices": [asdict(one) for one in found]})


def device(number: int) -> Device:
    """Describe a CUDA device."""
    import torch

    properties = torch.cuda.get_device_properties(number)
    return Device(
        properties.name,
        round(properties.total_memory / 1e9, 1),
        f"{properties.major}{properties.minor}",
        properties.multi_processor_count,
    )


@check("CuPy")
def cupy(machine: Machine) -> Finding:
    import torch

    try:
        module = import_module("cupy")
    except ImportError as error:
        if torch.cuda.is_available():
            raise CheckFailed(
                f"the kernels need CuPy to run on this GPU: {advice()} ({error})"
            ) from error
        raise CannotCheck(f"CuPy is missing, which only GPUs need: {advice()}") from error
    facts = {"version": module.__version__, "sees a GPU": bool(module.is_available())}
    if torch.cuda.is_available() and not module.is_available():
        raise CheckFailed(
            f"torch sees a GPU and CuPy {module.__version__} does not: it must fit the driver, "
            f"{advice()}"
        )
    return Finding(module.__version__, facts)


@check("DALI")
def dali(machine: Machine) -> Finding:
    try:
        module = import_module("nvidia.dali")
    except ImportError as error:
        raise CannotCheck(
            f"DALI is missing, so the loaders read with Pillow, which is slower: {advice()}"
        ) from error
    return Finding(module.__version__, {"version": module.__version__})


@check("C++ compiler")
def compiler(machine: Machine) -> Finding:
    wanted = os.environ.get("CXX") or "c++"
    path = shutil.which(wanted)
    if path is None:
        sentence = f"{wanted!r} was not found: install g++ or set CXX"
        if machine.no_gpu is None:
            raise CannotCheck(f"{sentence}; without it only images on the GPU are fast")
        raise CheckFailed(f"{sentence}; without it the ops run in PyTorch, which is slower")
    text = _first_line([path, "--version"])
    return Finding(text, {"path": path, "version": text})


@check("NVRTC")
def nvrtc(machine: Machine) -> Finding:
    facts: dict[str, object] = {"nvcc": None}
    if path := shutil.which("nvcc"):
        facts["nvcc"] = _first_line([path, "--version"], last=True)
    try:
        library = import_module("cupy.cuda").nvrtc
        major, minor = library.getVersion()
        architectures = list(library.getSupportedArchs())
    except (ImportError, RuntimeError) as error:
        if machine.no_gpu is None:
            raise CheckFailed(
                f"NVRTC, which compiles the kernels, is missing: {advice()}"
            ) from error
        raise CannotCheck(f"NVRTC is missing, which only GPUs need: {advice()}") from error
    facts |= {"version": f"{major}.{minor}", "architectures": architectures}
    return Finding(f"{major}.{minor}, up to sm_{max(architectures)}", facts)


def _first_line(command: list[str], last: bool = False) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    lines = done.stdout.strip().splitlines() or ["unknown version"]
    return lines[-1 if last else 0]


@check("caches")
def caches(machine: Machine) -> Finding:
    cupy_folder = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
    folders = {"DDAS_CACHE": backends.cache_folder(), "CUPY_CACHE_DIR": cupy_folder}
    for variable, folder in folders.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise CheckFailed(
                f"the cache {folder} cannot be written ({error.strerror}): set {variable} "
                "to a folder of yours"
            ) from error
    facts = {variable: str(folder) for variable, folder in folders.items()}
    return Finding(", ".join(facts.values()), facts)
