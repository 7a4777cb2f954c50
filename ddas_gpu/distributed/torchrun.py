"""What torchrun tells the processes that it starts, through their environment; no torch here."""

from __future__ import annotations

import os


def launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def count() -> int:
    """Ranks in all."""
    return _number("WORLD_SIZE", 1)


def rank() -> int:
    return _number("RANK", 0)


def local_count() -> int:
    """Ranks on this machine."""
    return _number("LOCAL_WORLD_SIZE", 1)


def local_rank() -> int:
    """Of the ranks on this machine."""
    return _number("LOCAL_RANK", 0)


def restarts() -> int:
    """How often all ranks have been started again since one of them failed."""
    return _number("TORCHELASTIC_RESTART_COUNT", 0)


def most_restarts() -> int:
    """torchrun's --max-restarts."""
    return _number("TORCHELASTIC_MAX_RESTARTS", 0)


def keeps_store() -> bool:
    """Whether ranks that are started again meet in the same store as those before them."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _number(name: str, without: int) -> int:
    return int(os.environ.get(name, without)) if launched() else without
