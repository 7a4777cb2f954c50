"""One run folder for all ranks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TypeVar

from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.errors import Refused
from ddas_gpu.runs.folder import RunFolder

Folder = TypeVar("Folder", bound=RunFolder)


def open_for_all(
    ranks: Ranks, open_folder: Callable[[], Folder], kind: type[Folder], new: bool
) -> Folder:
    """Rank 0 opens the folder, the others look at it; if one cannot, a `new` one is removed."""
    with ranks.together():
        own = open_folder() if ranks.first else None
    path = ranks.gather(own and own.path)[0]
    try:
        with ranks.together():
            return own or kind(path, writes=False)
    except Refused:
        if own is not None:
            with own:
                if new:
                    shutil.rmtree(path)
        raise
