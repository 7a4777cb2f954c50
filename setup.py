"""What is installed with the package; the versions the tests run with are in constraints.txt."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (ROOT / "ddas_gpu/__init__.py").read_text())[1]

CUDA12 = ["cupy-cuda12x>=13", "nvidia-cuda-nvrtc-cu12>=12.3", "nvidia-dali-cuda120>=1.44"]
CUDA13 = ["cupy-cuda13x>=13.6", "nvidia-cuda-nvrtc>=13,<14", "nvidia-dali-cuda130>=1.52"]
COCO = ["pycocotools>=2.0.7"]
# The tests need no GPU but do need DALI, whose pipelines run on the CPU too, and NVRTC, which
# compiles without a device. setuptools and wheel build the wheel that one test installs.
TEST = [*CUDA13, *COCO, "hypothesis>=6.100", "pytest>=8", "setuptools>=70", "wheel"]
BENCH = [*CUDA13, "albumentations==2.0.8", "pytest>=8", "pytest-benchmark>=4"]

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
    # The kernels have a folder of their own at the top of the repository, but belong to the
    # package: the launcher reads their text through importlib.resources.
    packages=[*find_packages(include=["ddas_gpu", "ddas_gpu.*"]), "ddas_gpu.kernels"],
    package_dir={"ddas_gpu": "ddas_gpu", "ddas_gpu.kernels": "kernels"},
    package_data={
        "": ["py.typed", "*.css", "*.html", "*.js", "*.json"],
        "ddas_gpu.kernels": ["*.cu", "*.cuh", "*.h", "*.cpp"],
    },
    entry_points={"console_scripts": ["ddas = ddas_gpu.__main__:main"]},
    zip_safe=False,
    install_requires=[
        "kornia>=0.7.3",
        "matplotlib>=3.7",
        "numpy>=1.24",
        "pillow>=10",
        "scikit-learn>=1.3",
        "scipy>=1.10",
        "torch>=2.4",
        "tqdm>=4.64",
        "tyro>=0.9",
    ],
    extras_require={
        "cuda12": CUDA12,
        "cuda13": CUDA13,
        "coco": COCO,
        "test": TEST,
        "bench": BENCH,
        "dev": sorted({*TEST, *BENCH, "build", "ruff>=0.9"}),
    },
)
