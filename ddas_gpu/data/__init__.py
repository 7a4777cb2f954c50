"""Where data sets lie, the proxy task cut out of them, and their standard transforms.

Names are loaded when first used: `data.catalog` is needed before torch is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "DataSet": "ddas_gpu.data.datasets",
    "Normalise": "ddas_gpu.data.tensors",
    "cutout_holes": "ddas_gpu.data.tensors",
    "find_root": "ddas_gpu.data.locating",
    "open_source": "ddas_gpu.data.locating",
    "proxy_sets": "ddas_gpu.data.proxies",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'ddas_gpu.data' has no attribute {name!r}")
