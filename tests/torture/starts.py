"""Signals to commands that are just starting: real processes, with their imports."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from commands import Command


def signalled(
    command: Command, folder: Path, generator: random.Random, starts: int
) -> Counter[str]:
    """Ctrl-C and SIGTERM between the first import and the end: no traceback, 128 + n in a shell."""
    counts: Counter[str] = Counter()
    out = folder / "run"
    folder.mkdir()
    words = [sys.executable, "-m", f"ddas_gpu.{command.name}", *command.tiny, "--out", str(out)]
    start = time.monotonic()
    subprocess.run(words, check=True, capture_output=True)
    seconds = time.monotonic() - start
    for _ in range(starts):
        shutil.rmtree(out)
        number = generator.choice((signal.SIGINT, signal.SIGTERM))
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=heed
        )
        try:  # not before Python itself has started: that is not ours
            process.wait(generator.uniform(min(0.2, seconds / 10), seconds))
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        _, told = process.communicate(timeout=600)
        assert "Traceback" not in told, told
        assert process.returncode in (0, -number, 128 + number), (process.returncode, told)
        counts["count"] += 1
        counts["with a run to resume"] += "--resume" in told
        out.mkdir(exist_ok=True)
    return counts


def heed() -> None:
    """Undo what a shell does to Ctrl-C in its background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
