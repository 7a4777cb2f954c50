"""Children of this process, which has imported everything: a start takes no seconds."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class End:
    """How a child ended, and what it printed."""

    code: int  # negative: killed by that signal
    text: str

    @property
    def in_order(self) -> bool:
        """Whether it ended well, or with one sentence."""
        return self.code in (0, 2) and "Traceback" not in self.text


class Child:
    """A function in a forked process, with its output in a file."""

    def __init__(self, work: Callable[[], int], log: Path, largest_file: int | None = None) -> None:
        self.log = log
        self.id = os.fork()
        if self.id:
            return
        code = 99
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            if largest_file is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
            code = work()
        except BaseException as error:
            import traceback

            traceback.print_exception(error)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def kill(self, number: signal.Signals) -> None:
        os.kill(self.id, number)

    def wait(self, seconds: float = 300) -> End:
        """Wait for the end; a child that hangs is an error."""
        limit = time.monotonic() + seconds
        while True:
            done, status = os.waitpid(self.id, os.WNOHANG)
            if done:
                return End(os.waitstatus_to_exitcode(status), self.log.read_text(errors="replace"))
            if time.monotonic() > limit:
                os.kill(self.id, signal.SIGKILL)
                os.waitpid(self.id, 0)
                raise TimeoutError(f"a child hung: {self.log.read_text(errors='replace')}")
            time.sleep(0.002)
