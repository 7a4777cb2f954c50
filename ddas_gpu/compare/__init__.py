"""Trainings under several policies, with several seeds each, compared."""

from ddas_gpu.compare.api import ComparisonResult, compare

__all__ = ["ComparisonResult", "compare"]
