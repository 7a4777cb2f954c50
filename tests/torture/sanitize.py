"""`make sanitize`: the tests of the op bank with the CPU target built under sanitizers.

PYTHONPATH=tests python -m torture.sanitize [address] [thread]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ddas_gpu.ops import backends

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("test_pillow_exact.py", "test_api.py", "test_box_policies.py")
# {sanitizer: (flags, libraries that must be loaded before all others, options)}
SANITIZERS = {
    "address": (
        ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        ("libasan.so", "libubsan.so"),
        # CPython keeps much until the end: leaks are looked for elsewhere.
        {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1", "UBSAN_OPTIONS": "print_stacktrace=1"},
    ),
    "thread": (
        ("-fsanitize=thread",),
        ("libtsan.so",),
        {"TSAN_OPTIONS": "halt_on_error=1:exitcode=66:report_signal_unsafe=0"},
    ),
}
# Many callers and helpers on one library, for the thread sanitizer; no torch, which has its own.
THREADS = """
from concurrent.futures import ThreadPoolExecutor
import sys
import numpy as np
from ddas_gpu.ops import OPS, PixelScale, apply_op, backends, set_num_threads
backends.FLAGS = eval(sys.argv[1])
set_num_threads(4)
batches = np.random.default_rng(0).integers(0, 256, (4, 12, 96, 96, 3), np.uint8)
calls = 0
with ThreadPoolExecutor(4) as callers:
    for name, op in OPS.items():
        for level in (2, 10) if op.law else (None,):
            argument = None if level is None else op.law(level, PixelScale())
            def call(images): return apply_op(images, name, argument, backend="cpu")
            results = list(callers.map(call, batches))
            for images, result in zip(batches, results):
                assert (call(images) == result).all(), name
            calls += 2 * len(batches)
print(calls, "calls of", len(OPS), "ops")
"""
BANK = """
import sys
import pytest
from ddas_gpu.ops import backends
backends.FLAGS = eval(sys.argv[1])
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


def library(name: str) -> str:
    found = subprocess.run(
        [os.environ.get("CXX") or "c++", f"-print-file-name={name}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return found.stdout.strip()


def sanitize(name: str) -> int:
    """Build under a sanitizer, run, and return the exit code."""
    flags, libraries, options = SANITIZERS[name]
    backends.FLAGS = (*backends.FLAGS, "-g", *flags)
    backends.build()  # before the sanitizer is loaded: the compiler must not run under it
    tests = [str(ROOT / "tests" / "ops" / test) for test in TESTS]
    flags_now = repr(backends.FLAGS)
    program = {"address": [BANK, flags_now, *tests], "thread": [THREADS, flags_now]}
    environment = {**os.environ, **options, "LD_PRELOAD": ":".join(map(library, libraries))}
    # The thread sanitizer needs addresses that randomisation does not move.
    command = ["setarch", "-R", sys.executable, "-c", *program[name]]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def main(names: list[str]) -> int:
    if len(names) == 1:
        return sanitize(names[0])
    with tempfile.TemporaryDirectory() as cache:
        for name in names or SANITIZERS:
            command = [sys.executable, "-m", "torture.sanitize", name]
            environment = {**os.environ, "DDAS_CACHE": cache}
            code = subprocess.run(command, env=environment, check=False).returncode
            print(f"{name}: {'no finding' if code == 0 else f'exit code {code}'}", flush=True)
            if code:
                return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
