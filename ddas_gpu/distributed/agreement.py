"""Checking that all ranks run with the same settings, data and state."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.errors import Refused
from ddas_gpu.policy import versions


def require_same(ranks: Ranks, facts: dict[str, Any], when: str = "") -> None:
    """Raise `Refused` on all ranks if a fact differs between ranks; names are in the plural.

    >>> from ddas_gpu.distributed.ranks import ALONE
    >>> require_same(ALONE, {"training images": 0x5EED})
    """
    first, *others = ranks.gather(facts)
    for rank, theirs in enumerate(others, 1):
        for name, ours in first.items():
            if theirs.get(name) != ours:
                raise Refused(
                    f"rank {rank} has other {name} than rank 0{when} "
                    f"({theirs.get(name)} instead of {ours})"
                )


IMAGES = ("training images", "validation or test images")


def require_same_start(
    ranks: Ranks, settings: Any, fingerprints: Callable[[], Sequence[int]], **facts: Any
) -> None:
    """Compare flags, package versions, `fingerprints` of the images, and `facts`."""
    if ranks.count == 1:
        return
    flags = {f"values of --{n.replace('_', '-')}": v for n, v in settings.to_json().items()}
    packages = {f"versions of {name}": version for name, version in versions().items()}
    require_same(ranks, flags | packages | dict(zip(IMAGES, fingerprints(), strict=True)) | facts)


def digest(*tensors: torch.Tensor | np.ndarray) -> str:
    """Return a short hash of the bytes of these tensors."""
    checksum = hashlib.sha256()
    for each in tensors:
        # torch.tensor copies: torch warns about sharing memory with read-only arrays.
        tensor = torch.tensor(each) if isinstance(each, np.ndarray) else each.detach().cpu()
        checksum.update(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return checksum.hexdigest()[:16]
