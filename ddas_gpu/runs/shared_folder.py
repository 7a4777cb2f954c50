"""One run folder for all ranks."""

from __future__ import annotations

from collections.abc import Callable

from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.errors import Refused
from ddas_gpu.runs.run_folder import RunFolder


def open_for_all(ranks: Ranks, open_folder: Callable[[], RunFolder]) -> RunFolder:
    """Open the folder on rank 0 and look at it from the others.

    If one of them cannot see it, what `open_folder` created is removed.
    """
    with ranks.together():
        own = open_folder() if ranks.first else None
    path = ranks.gather(own and own.path)[0]
    try:
        with ranks.together():
            return own or RunFolder(path, writes=False)
    except Refused:
        if own is not None:
            own.discard()
        raise
