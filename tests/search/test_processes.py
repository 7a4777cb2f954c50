"""Work side by side: what it returns, and how it ends after a failure or a signal."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from ddas_gpu.errors import Stopped, stoppable
from ddas_gpu.search.processes import run_side_by_side


def write(path, code=0):
    path.write_text(str(os.getpid()))
    return code


def sleep(path):
    """Wait for a signal, and say that it came."""
    try:
        with stoppable():
            path.write_text("waiting")
            time.sleep(60)
    except Stopped as stop:
        path.write_text(f"stopped by {stop.number}")
        return 128 + stop.number
    return 0


def test_every_call_has_a_process_of_its_own(tmp_path):
    paths = [tmp_path / str(number) for number in range(3)]
    assert run_side_by_side(write, [(path,) for path in paths], 2) == 0
    assert len({path.read_text() for path in paths} | {str(os.getpid())}) == 4


def test_a_failure_stops_the_others_and_begins_no_more(tmp_path):
    waiting, never = tmp_path / "waiting", tmp_path / "never"
    calls = [(waiting, True), (waiting, False), (never, False)]
    assert run_side_by_side(fail_beside, calls, 2) == 2
    assert waiting.read_text() == f"stopped by {signal.SIGTERM.value}" and not never.exists()


def fail_beside(path, waits):
    if waits:
        return sleep(path)
    while not path.exists():
        time.sleep(0.01)
    return 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_once(tmp_path, number):
    path = tmp_path / "waiting"

    def send():
        while not path.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()
    with stoppable():
        assert run_side_by_side(sleep, [(path,), (tmp_path / "never",)], 1) == 128 + number
    assert path.read_text() == f"stopped by {number.value}" and not (tmp_path / "never").exists()
