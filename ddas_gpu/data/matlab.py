"""Reading MATLAB files (.mat), which SVHN and ImageNet's devkit are published in."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_mat(path: Path, what: str, **options: Any) -> dict[str, Any]:
    """Return the variables of a .mat file; `options` go to `scipy.io.loadmat`.

    Raise a ValueError if SciPy is missing, or if the file is damaged and so not `what`.
    """
    try:
        from scipy.io import loadmat
    except ImportError:
        raise ValueError(
            f"{path} is a MATLAB file, and reading it needs SciPy: pip install 'ddas_gpu[mat]'"
        ) from None
    try:
        return loadmat(path, **options)
    except Exception as error:  # loadmat documents no exceptions of its own for damaged files
        raise ValueError(f"{path} is not {what}: {error}") from None
