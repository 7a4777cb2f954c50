"""The environment variables that torchrun sets; does not import torch."""

from __future__ import annotations

import os


def launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def count() -> int:
    """Return the number of ranks."""
    return _number("WORLD_SIZE", 1)


def rank() -> int:
    return _number("RANK", 0)


def local_count() -> int:
    """Return the number of ranks on this machine."""
    return _number("LOCAL_WORLD_SIZE", 1)


def local_rank() -> int:
    """Return the rank among those on this machine."""
    return _number("LOCAL_RANK", 0)


def restarts() -> int:
    """Return how many times torchrun has restarted the ranks after a failure."""
    return _number("TORCHELASTIC_RESTART_COUNT", 0)


def most_restarts() -> int:
    """Return torchrun's --max-restarts."""
    return _number("TORCHELASTIC_MAX_RESTARTS", 0)


def keeps_store() -> bool:
    """Return whether restarted ranks use the same store as before."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _number(name: str, default: int) -> int:
    return int(os.environ.get(name, default)) if launched() else default
