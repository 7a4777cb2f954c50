"""A wheel has all it takes: installed into an empty environment, it augments an image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
import importlib.resources, json, sys
import numpy as np
import ddas_gpu
image = np.load("image.npy")
space = ddas_gpu.SearchSpace.of(["Invert", "Equalize"], depth=2)
np.save("result.npy", ddas_gpu.augment(image[None], [0, 1], space, seed=0, backend="cpu")[0])
kernels = importlib.resources.files("ddas_gpu.kernels")
print(json.dumps([ddas_gpu.__file__, str(kernels), sorted(p.name for p in kernels.iterdir())]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy: a build leaves files behind, and the next one would pack them too.
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("ddas_gpu", "kernels"):
        shutil.copytree(ROOT / name, source / name)
    pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", dist, source)
    return next(dist.glob("ddas_gpu-*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel; torch and so on are borrowed from ours."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    ours = sysconfig.get_paths()
    packages = next(folder.glob("lib/python*/site-packages"))
    (packages / "borrowed.pth").write_text(f"{ours['purelib']}\n{ours['platlib']}\n")
    return python


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_wheel_augments_an_image_in_an_empty_environment(python: Path, tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(30, 200, (40, 50, 3), dtype=np.uint8)
    np.save(tmp_path / "image.npy", image)
    # A cache of its own, so that the CPU target is built from the sources in the wheel.
    result = subprocess.run(
        [python, "-I", "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "DDAS_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    package, kernels, names = json.loads(result.stdout)
    environment = python.parents[1]
    assert Path(package).is_relative_to(environment)
    assert Path(kernels).is_relative_to(environment)
    assert {p.name for p in (ROOT / "kernels").iterdir() if p.is_file()} <= set(names)

    expected = ImageOps.equalize(ImageOps.invert(Image.fromarray(image)))
    assert np.array_equal(np.load(tmp_path / "result.npy"), np.asarray(expected))


def test_every_file_of_the_package_is_packed(python: Path) -> None:
    packages = next(python.parents[1].glob("lib/python*/site-packages"))
    files = (p for p in (ROOT / "ddas_gpu").rglob("*") if p.is_file() and p.suffix != ".pyc")
    assert [p for p in files if not (packages / p.relative_to(ROOT)).exists()] == []
