"""The names that files written by `ddas export` import."""

from ddas_gpu.export import dali_policy, load_albumentations, save_albumentations

__all__ = ["dali_policy", "load_albumentations", "save_albumentations"]
