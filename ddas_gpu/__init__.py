"""Learn how to augment a data set, then feed what was learned to any PyTorch trainer.

Names are loaded when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_HOME = {
    "BatchPolicy": "ddas_gpu.transforms",
    "BoxPolicyTransform": "ddas_gpu.transforms",
    "Candidate": "ddas_gpu.space",
    "OnlineSearch": "ddas_gpu.search.online",
    "PolicySchedule": "ddas_gpu.policy",
    "PolicyTransform": "ddas_gpu.transforms",
    "SearchResult": "ddas_gpu.search.api",
    "SearchSpace": "ddas_gpu.space",
    "SearchTask": "ddas_gpu.tasks.custom",
    "augment": "ddas_gpu.ops",
    "detection_loader": "ddas_gpu.pipelines",
    "detection_pipeline": "ddas_gpu.pipelines",
    "loader": "ddas_gpu.pipelines",
    "scan_images": "ddas_gpu.data.scanning",
    "search_policy": "ddas_gpu.search.api",
    "set_num_threads": "ddas_gpu.ops",
    "training_pipeline": "ddas_gpu.pipelines",
}
_MODULES = ("gradients", "ops")
_OPTIONAL = ("dali",)  # needs NVIDIA DALI, and so is not part of `import *`

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in (*_MODULES, *_OPTIONAL):
        return import_module(f"ddas_gpu.{name}")
    raise AttributeError(f"module 'ddas_gpu' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_OPTIONAL])
