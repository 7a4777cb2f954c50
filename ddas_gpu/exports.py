"""The policy of one epoch for other libraries. Files that the export command wrote import this."""

from ddas_gpu.export.albumentations_policy import (
    albumentations_policy,
    load_albumentations,
    save_albumentations,
)
from ddas_gpu.export.dali_policy import dali_policy

__all__ = ["albumentations_policy", "dali_policy", "load_albumentations", "save_albumentations"]
