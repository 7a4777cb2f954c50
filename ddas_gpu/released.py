"""Reading the authors' published policies: .npy files that hold a pickled dict."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ddas_gpu.unpickling import restricted_load

CANDIDATES = 52  # the "cifar" space
MOST_EPOCHS = 10_000
MAGIC = b"\x93NUMPY"
LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}  # of the header, by the version of the format
ONE_OBJECT = "{'descr':'|O','fortran_order':False,'shape':(),}"


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
    """Return the pickle inside an .npy file of one Python object.

    NumPy would evaluate the header as Python; only one header is right here.
    """
    content = path.read_bytes()
    if not content.startswith(MAGIC) or len(content) < len(MAGIC) + 2:
        raise ValueError(f"{path} is not an .npy file")
    version = content[len(MAGIC)], content[len(MAGIC) + 1]
    if version not in LENGTH_BYTES:
        raise ValueError(f"{path} is an .npy file of the unknown version {version}")
    start = len(MAGIC) + 2 + LENGTH_BYTES[version]
    end = start + int.from_bytes(content[len(MAGIC) + 2 : start], "little")
    header = "".join(content[start:end].decode("latin1").split())
    if header != ONE_OBJECT:
        raise ValueError(f"{path} holds the array {header[:100]!r}, not a released policy")
    return content[end:]
