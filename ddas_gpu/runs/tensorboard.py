"""The numbers of metrics.jsonl as curves in TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = "tensorboard"


def require_tensorboard() -> None:
    """Raise a ValueError where the package is missing."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"--tensorboard needs a package that is missing ({error}): pip install tensorboard"
        ) from None


class Curves:
    """Event files in the run folder, one point per line of metrics.jsonl.

    first: lines that are there already; points from there on, of a run that was cut, are hidden.
    """

    def __init__(self, run: Path, first: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run / FOLDER), purge_step=first)

    def add(self, line: int, metrics: Mapping[str, Any]) -> None:
        for name, value in numbers(metrics):
            self._writer.add_scalar(name, value, line)

    def close(self) -> None:
        self._writer.close()


def numbers(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield the name and the value of each number; lists, such as policies, are no curves.

    >>> list(numbers({"loss": 2.0, "seconds": {"data": 0.5}, "policies": [[1, 2]]}))
    [('loss', 2.0), ('seconds/data', 0.5)]
    """
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)):
            yield f"{prefix}{name}", float(value)
