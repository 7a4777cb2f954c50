"""The paper's classifiers and detectors, and a small classifier for CPUs."""

from ddas_gpu.models.registry import build, task_of

__all__ = ["build", "task_of"]
