"""Signals to commands that are just starting: real processes, with their imports."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from commands import Command

LONG = ("--epochs", "40")


def signalled(
    command: Command, folder: Path, generator: random.Random, starts: int
) -> Counter[str]:
    """Ctrl-C and SIGTERM between the first import and the end: no traceback, 128 + n in a shell.

    Half of them come before the run exists, half after.
    """
    counts: Counter[str] = Counter()
    out = folder / "run"
    folder.mkdir()
    words = [
        sys.executable,
        "-m",
        f"ddas_gpu.{command.name}",
        *command.tiny,
        *LONG,
        "--out",
        str(out),
    ]
    begin = time.monotonic()
    subprocess.run(words, check=True, capture_output=True)
    seconds = time.monotonic() - begin
    for start in range(starts):
        shutil.rmtree(out)
        number = generator.choice((signal.SIGINT, signal.SIGTERM))
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=heed
        )
        wait_for(process, ours_after(process.pid))
        if start % 2:
            wait_for(process, lambda: (out / "config.json").exists())
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(generator.uniform(0, seconds / 3))
        process.send_signal(number)
        _, told = process.communicate(timeout=600)
        assert "Traceback" not in told, told
        assert process.returncode in (0, -number, 128 + number), (process.returncode, told)
        counts["count"] += 1
        counts["with a run to resume"] += "--resume" in told
        out.mkdir(exist_ok=True)
    return counts


def wait_for(process: subprocess.Popen, condition: Callable[[], bool]) -> None:
    while process.poll() is None and not condition():
        time.sleep(0.001)


def ours_after(process_id: int) -> Callable[[], bool]:
    """Return whether our first line has run: Python catches SIGINT when it starts, we let it.

    A traceback from Python's own start is not ours.
    """
    path, caught = Path(f"/proc/{process_id}/status"), [False]

    def begun() -> bool:
        before = caught[-1]
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
        caught.append(bool(int(lines.get("SigCgt", "0"), 16) & 1 << signal.SIGINT - 1))
        return before and not caught[-1]

    return begun


def heed() -> None:
    """Undo what a shell does to Ctrl-C in its background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
