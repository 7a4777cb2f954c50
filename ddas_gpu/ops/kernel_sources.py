"""The sources of the kernels."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path


def folder() -> Path:
    """Return the folder kernels/ of the checkout, or ddas_gpu/kernels/ of the wheel."""
    return Path(str(files("ddas_gpu.kernels")))


def digest(*suffixes: str) -> str:
    """Return a hash of all sources with these suffixes, for the keys of compile caches."""
    key = hashlib.sha256()
    for source in sorted(folder().iterdir()):
        if source.suffix in suffixes:
            key.update(source.name.encode() + b"\0" + source.read_bytes())
    return key.hexdigest()[:20]
