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


MOST_CHARACTERS = 2000


def sentence(error: Exception) -> str:
    """Return one line that says what is wrong and what to do."""
    text = printable(" ".join(_words(error).split()))
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …"


def printable(text: str) -> str:
    """Return a text without control characters, which file names may hold and terminals obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"the disk is full{place}: free some space; a run goes on with --resume"
        return f"{error.strerror}{place}"
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    return str(error)
