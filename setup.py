"""Package metadata and dependencies; constraints.txt has the versions that CI runs."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
(VERSION,) = re.findall(r'__version__ = "(.+?)"', (ROOT / "ddas_gpu/__init__.py").read_text())

# CuPy compiles the kernels when they are first used. It looks for the headers of the CUDA runtime
# package even though the kernels include none, from 14.1 on whatever minor version they have. The
# oldest DALI is the one that tests/pipelines was run with (CONTRIBUTING.md, "The oldest DALI").
CUDA12 = [
    "cupy-cuda12x>=14.1",
    "nvidia-cuda-nvrtc-cu12>=12.3",
    "nvidia-cuda-runtime-cu12>=12.3",
    "nvidia-dali-cuda120>=2.2",
]
CUDA13 = [
    "cupy-cuda13x>=14.1",
    "nvidia-cuda-nvrtc>=13,<14",
    "nvidia-cuda-runtime>=13,<14",
    "nvidia-dali-cuda130>=2.2",
]
# pycocotools computes mAP; safetensors reads backbone weights in that format.
COCO = ["pycocotools>=2.0.7", "safetensors>=0.4.3"]
# The trainers that ddas_gpu.adapters and the examples work with; none is needed otherwise.
TRAINERS = ["accelerate>=1.0", "lightning>=2.3", "transformers>=4.46.1"]
TENSORBOARD = ["tensorboard>=2.14"]
# The documentation site; `make docs` builds it.
DOCS = ["mkdocs>=1.6", "mkdocs-material>=9.6", "mkdocstrings[python]>=1.0"]
LINT = ["import-linter>=2.1", "mypy>=1.15", "ruff>=0.9"]
# The tests need no GPU but do need DALI, whose pipelines run on the CPU too, and NVRTC, which
# compiles without a device. setuptools and wheel build the wheel that one test installs.
TEST = [
    *CUDA13,
    *COCO,
    *TRAINERS,
    *TENSORBOARD,
    "datasets>=2.14",
    "hypothesis>=6.100",
    "pytest>=8",
    "pytest-xdist>=3.5",
    "scipy>=1.10",
    "setuptools>=70",
    "wheel",
]
BENCH = [
    *CUDA13,
    "albumentations==2.0.8",
    "matplotlib>=3.7",
    "pytest>=8",
    "pytest-benchmark>=4",
]

setup(
    name="ddas_gpu",
    version=VERSION,
    description="Learn how to augment a data set, then feed what was learned to any trainer",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: GPU :: NVIDIA CUDA",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C++",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.10",
    # The kernels lie at the top of the repository but are part of the package: the launcher reads
    # their text through importlib.resources.
    packages=[*find_packages(include=["ddas_gpu", "ddas_gpu.*"]), "ddas_gpu.kernels"],
    package_dir={"ddas_gpu": "ddas_gpu", "ddas_gpu.kernels": "kernels"},
    package_data={
        "": ["py.typed", "*.css", "*.html", "*.js", "*.json", "*.npz"],
        "ddas_gpu.kernels": ["*.cu", "*.cuh", "*.h", "*.cpp"],
    },
    entry_points={"console_scripts": ["ddas = ddas_gpu.__main__:main"]},
    zip_safe=False,
    install_requires=[
        "kornia>=0.7.3",
        "numpy>=1.24",
        "pillow>=10",
        # 2.6 has torch.compiler.set_stance.
        "torch>=2.6",
        "tqdm>=4.64",
        "tyro>=0.9.1",
    ],
    extras_require={
        "cuda12": CUDA12,
        "cuda13": CUDA13,
        "coco": COCO,
        "trainers": TRAINERS,
        "tensorboard": TENSORBOARD,
        # For the files that `ddas export --to torchvision` writes; nothing else imports it.
        "torchvision": ["torchvision>=0.21"],
        # For ddas_gpu.adapters.ultralytics. It needs torchvision and is under the AGPL-3.0.
        "ultralytics": ["ultralytics>=8.4"],
        "test": TEST,
        "bench": BENCH,
        "docs": DOCS,
        "lint": LINT,
        "dev": sorted({*TEST, *BENCH, *DOCS, *LINT, "build", "pre-commit"}),
    },
)
