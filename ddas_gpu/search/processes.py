"""Work in several processes side by side, which stop when this one is stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any

from ddas_gpu.errors import Stopped


def run_side_by_side(
    work: Callable[..., int], calls: Sequence[tuple[Any, ...]], at_once: int
) -> int:
    """Call `work` once for each of the arguments; return 0, or the first other exit code.

    work: a function of a module, because the processes import it anew. After a failure no further
    one is begun and the others are sent SIGTERM, on a signal to this process they are sent the
    same; all of them are waited for.
    """
    context = multiprocessing.get_context("spawn")
    waiting = list(calls)[::-1]
    running: list[SpawnProcess] = []
    code = 0
    while running or (waiting and not code):
        try:
            while waiting and not code and len(running) < at_once:
                running.append(context.Process(target=_call, args=(work, waiting.pop())))
                running[-1].start()
            wait([process.sentinel for process in running])
        except Stopped as stop:
            code = 128 + stop.number
            _send(running, stop.number)
        for process in [process for process in running if process.exitcode is not None]:
            running.remove(process)
            ended = process.exitcode or 0
            if ended and not code:
                code = ended if ended > 0 else 128 - ended  # negative: died of a signal
                _send(running, signal.SIGTERM)
    return code


def _send(processes: Sequence[SpawnProcess], number: int) -> None:
    for process in processes:
        if process.pid is not None:
            os.kill(process.pid, number)


def _call(work: Callable[..., int], arguments: tuple[Any, ...]) -> None:
    """Run in the new process: end with the exit code of `work`."""
    os.setpgrp()  # the terminal's Ctrl-C is for the first process, which passes it on once
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(work(*arguments))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
