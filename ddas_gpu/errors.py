"""Exceptions, their messages in one sentence, and signals as exceptions."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, TextIO, cast


class Diverged(ArithmeticError):
    """A loss or a weight is not finite; continuing would corrupt the result."""

    on_all_ranks = True


class Refused(ValueError):
    """An error that every rank of a run raises."""

    on_all_ranks = True


class LostContact(ConnectionError):
    """Another rank has ended or did not answer within the timeout."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, inside `stoppable`."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def signal_of(stop: KeyboardInterrupt) -> int:
    """Return the number of the signal; outside `stoppable` it is Ctrl-C's."""
    return stop.number if isinstance(stop, Stopped) else signal.SIGINT


def die_of_ctrl_c() -> None:
    """Let Ctrl-C end this process at once, without a traceback, as SIGTERM does by default.

    For programs, before their imports: these take seconds, and nothing has begun. Some of them
    swallow a KeyboardInterrupt.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as by nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` on Ctrl-C and SIGTERM, so that what was begun can be cleaned up."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise Stopped(number)

    before = {}
    if threading.current_thread() is threading.main_thread():  # others cannot set handlers
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Lasting:
    """A stream of messages whose reader may go, such as a closed terminal or `| head`.

    What is written then goes nowhere, and the run goes on.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._let_go()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._let_go()

    def _let_go(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())  # also for libraries, and what is still buffered
        os.close(nowhere)


@contextmanager
def lasting_messages() -> Iterator[None]:
    """Let messages to stderr fail without harm, also where it was closed from the start.

    A file of the run must not take the place of a closed stream, which libraries write to.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    stream = os.fdopen(os.dup(2), "w") if sys.stderr is None else sys.stderr
    before, sys.stderr = sys.stderr, cast(TextIO, Lasting(stream))
    try:
        yield
    finally:
        sys.stderr = before


def exit_code_of(program: str, work: Callable[[], int]) -> int:
    """Return what `work` returns; or print one sentence, and return 2 or 128 + the signal."""
    with lasting_messages():
        try:
            with stoppable():
                return work()
        except (ValueError, ArithmeticError, OSError, MemoryError) as error:
            print(f"{program}: {sentence(error)}", file=sys.stderr)
            return 2
        except KeyboardInterrupt as stop:
            print("stopped", file=sys.stderr)
            return 128 + signal_of(stop)


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
    if isinstance(error, UnicodeEncodeError):
        name = error.object[max(0, error.start - 40) : error.end]
        return f"a name that is not UTF-8 cannot be stored: … {name}"
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    return str(error)
