"""Reading the authors' published policies: .npy files that hold a pickled dict."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from ddas_gpu.unpickling import restricted_load

CANDIDATES = 52  # the "cifar" space
MOST_EPOCHS = 10_000
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_released(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Return p_tp (T,) and p_o (T, 52) of a published CIFAR policy over the "cifar" space.

    `dis_ps` holds p_o at the *start* of each of the 20 epochs: the first row is uniform. `tps`
    holds p_tp, already smoothed, at the same moments (the first is the initial 0.35) and once
    more after the last epoch. Only the moments that both have are returned, so entry t is what
    the search used *in* epoch t, whereas our schedules hold the values *after* epoch t.
    """
    path = Path(path)
    content = restricted_load(_pickled(path), path)
    try:
        rows, values = content["dis_ps"], content["tps"]
        if not isinstance(rows, list) or len(rows) > MOST_EPOCHS:
            raise ValueError(f"`dis_ps` is not a list of up to {MOST_EPOCHS} arrays")
        if not isinstance(values, list) or not all(type(v) in (int, float) for v in values):
            raise ValueError("`tps` is not a list of numbers")
        if not all(isinstance(row, np.ndarray) and row.shape == (CANDIDATES,) for row in rows):
            raise ValueError(f"`dis_ps` is not a list of arrays of {CANDIDATES} numbers")
        p_o = np.stack(rows).astype(np.float64)
        p_tp = np.array(values[: len(p_o)], dtype=np.float64)
        # Published in float32: make the rows sum to 1 in float64.
        with np.errstate(all="ignore"):  # `PolicySchedule` refuses what is not finite
            p_o /= p_o.sum(1, keepdims=True)
        return p_tp, p_o
    except (TypeError, KeyError, ValueError, IndexError, OverflowError) as error:
        raise ValueError(
            f"{path} is not a released policy, a dict with `dis_ps` of 52 probabilities per epoch "
            f"and `tps`: {error}"
        ) from None


def _pickled(path: Path) -> bytes:
    """Return the pickle inside an .npy file of one Python object."""
    file = io.BytesIO(path.read_bytes())
    try:
        read_header = HEADERS[np.lib.format.read_magic(file)]
        shape, _, dtype = read_header(file)
    except KeyError as error:
        raise ValueError(f"{path} is an .npy file of the unknown version {error}") from None
    # NumPy evaluates the header as Python literals, which can fail in many ways.
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{path} is not an .npy file: {error}") from None
    if shape != () or not dtype.hasobject:
        raise ValueError(f"{path} holds an array of {dtype} {shape}, not a released policy")
    return file.read()
