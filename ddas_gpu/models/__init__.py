"""The paper's image classifiers and detectors, and a small one for two CPU cores."""

from ddas_gpu.models.registry import build

__all__ = ["build"]
