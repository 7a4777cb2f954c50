"""Reading pickles of plain NumPy data (CIFAR batches, released policies) without running code."""

from __future__ import annotations

import codecs
import io
import pickle
from typing import Any

import numpy as np
from numpy.dtypes import ObjectDType


def _reconstruct(kind: type, shape: tuple[int, ...], typecode: bytes) -> np.ndarray:
    """Do what `numpy.core.multiarray._reconstruct` does, for plain arrays only."""
    if kind is not np.ndarray:
        raise pickle.UnpicklingError(f"an array of kind {kind!r}")
    return np.ndarray(shape, np.dtype(typecode.decode()))


def _scalar(dtype: np.dtype, content: bytes | str = b"") -> Any:
    """Do what `numpy.core.multiarray.scalar` does, except for objects."""
    if isinstance(dtype, ObjectDType):
        raise pickle.UnpicklingError("an object scalar")
    raw = content.encode("latin1") if isinstance(content, str) else content
    return np.frombuffer(raw, dtype, count=1)[0]


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Do what `_codecs.encode` does, for the encoding of Python 2 bytes only."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"the encoding {encoding!r}")
    return codecs.encode(text, encoding)


# NumPy moved `numpy.core` to `numpy._core`; files name either.
ALLOWED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
    **{
        (f"numpy.{core}.multiarray", name): function
        for core in ("core", "_core")
        for name, function in (("_reconstruct", _reconstruct), ("scalar", _scalar))
    },
}


class _Restricted(pickle.Unpickler):
    """Reads numbers, text, lists, dicts and NumPy arrays; refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}") from None


def restricted_load(content: bytes, path: object) -> Any:
    """Return the object pickled in `content`; raise a ValueError for anything but plain data."""
    try:
        return _Restricted(io.BytesIO(content), encoding="latin1").load()
    # The opcodes of a damaged pickle can raise any exception.
    except Exception as error:
        raise ValueError(
            f"{path} is not a pickle of plain NumPy data, and nothing else is read: {error}"
        ) from None
