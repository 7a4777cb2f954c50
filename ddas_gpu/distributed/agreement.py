"""Finding out that ranks are not of the same run, before or while they compute."""

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
    """Raise `Refused`, on all ranks, if any fact is not the same on all; its name comes in plural.

    >>> require_same(ranks, {"training images": train.fingerprint()})
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
    """The handshake: flags, versions of the packages, `fingerprints` of the images, and `facts`."""
    if ranks.count == 1:
        return
    flags = {f"values of --{n.replace('_', '-')}": v for n, v in settings.to_json().items()}
    packages = {f"versions of {name}": version for name, version in versions().items()}
    require_same(ranks, flags | packages | dict(zip(IMAGES, fingerprints(), strict=True)) | facts)


def digest(*tensors: torch.Tensor | np.ndarray) -> str:
    """A few letters that tell these tensors from others that differ in a single bit."""
    checksum = hashlib.sha256()
    for tensor in tensors:
        if isinstance(tensor, np.ndarray):
            tensor = torch.tensor(tensor)  # a copy: some arrays are read-only
        flat = tensor.detach().cpu().reshape(-1).contiguous()
        checksum.update(flat.view(torch.uint8).numpy())
    return checksum.hexdigest()[:16]
