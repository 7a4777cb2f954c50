"""Errors of a run, and any error as one sentence."""

from __future__ import annotations

import errno


class Diverged(ArithmeticError):
    """A loss is no longer finite; further steps would only spoil the weights and α."""

    on_all_ranks = True


class Refused(ValueError):
    """An error that the ranks of a run found together: every one of them raises it."""

    on_all_ranks = True


class LostContact(ConnectionError):
    """Another rank is gone, or has not answered for too long."""


def sentence(error: Exception) -> str:
    """Return one line that says what is wrong and what to do."""
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"the disk is full{place}: free some space; a run goes on with --resume"
        return f"{error.strerror}{place}"
    return " ".join(str(error).split())
