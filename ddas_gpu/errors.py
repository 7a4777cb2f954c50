"""Exceptions, and their messages in one sentence."""

from __future__ import annotations

import errno


class Diverged(ArithmeticError):
    """A loss or a weight is not finite; continuing would corrupt the result."""

    on_all_ranks = True


class Refused(ValueError):
    """An error that every rank of a run raises."""

    on_all_ranks = True


class LostContact(ConnectionError):
    """Another rank has ended or did not answer within the timeout."""


def sentence(error: Exception) -> str:
    """Return one line that says what is wrong and what to do."""
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"the disk is full{place}: free some space; a run goes on with --resume"
        return f"{error.strerror}{place}"
    return " ".join(str(error).split())
