"""Children of this process, which has imported everything: a start takes no seconds."""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ddas_gpu.errors import die_of_ctrl_c

HELD = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class End:
    """How a child ended, and what it printed."""

    code: int  # negative: killed by that signal
    text: str

    def require(self, *codes: int) -> End:
        """Raise an AssertionError unless it ended like this, and without a traceback."""
        assert self.code in codes and "Traceback" not in self.text, self
        return self

    def require_sentence(self, *words: str) -> End:
        """Raise an AssertionError unless it was refused in one sentence with any of these words."""
        self.require(2)
        assert any(word in self.text for word in words), self
        return self


class Child:
    """A function in a forked process, with its output in a file.

    first: what to do before, in the child, such as to limit itself.
    """

    def __init__(
        self, work: Callable[[], int], log: Path, first: Callable[[], object] | None = None
    ) -> None:
        self.log = log
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        # A signal waits until the child is as commands begin.
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
        self.id = os.fork()
        if self.id:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
            os.close(output)
            self._ended = os.pidfd_open(self.id)
            return
        code = 99
        try:
            os.dup2(output, 1)
            os.dup2(output, 2)
            # Not ignored, as in the background of a shell; then as the commands begin.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            die_of_ctrl_c()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
            if first is not None:
                first()
            code = work()
        except BaseException as error:
            traceback.print_exception(error)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.id, number)

    def runs(self, seconds: float) -> bool:
        """Wait at most so long; return whether it still runs."""
        return not select.select([self._ended], [], [], seconds)[0]

    def wait(self, seconds: float = 600) -> End:
        """Wait for the end; a child that hangs is an error."""
        hangs = self.runs(seconds)
        if hangs:
            self.kill()
        _, status = os.waitpid(self.id, 0)
        os.close(self._ended)
        text = self.log.read_text(errors="replace")
        if hangs:
            raise TimeoutError(f"a child hung: {text}")
        return End(os.waitstatus_to_exitcode(status), text)
