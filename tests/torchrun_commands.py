"""Commands under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent

# As TINY in `search_commands`, on two ranks: 4 steps per epoch, 8 in all.
TINY = (
    "--epochs 2 --train-images 32 --val-images 40 --batch-size 4 --val-batch-size 10"
    " --policies 3 --threads 1 --warmup-epochs 0"
).split()


def start(
    command: str, *flags: object, ranks: int = 2, restarts: int = 0, **environment: object
) -> subprocess.Popen[str]:
    """`torchrun -m ddas_gpu.COMMAND`, with modules of the tests to import models from."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    launcher += [f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
    own = {name: str(value) for name, value in environment.items()}
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    return subprocess.Popen(
        [*launcher, "-m", f"ddas_gpu.{command}", *map(str, flags)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group, as a terminal would have for it
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | own,
    )


def run(command: str, *flags: object, **options: object) -> tuple[int, str, str]:
    """The exit code of torchrun, and what was printed to stdout and to stderr."""
    process = start(command, *flags, **options)
    out, err = process.communicate()
    return process.returncode, out, err


def said(program: str, err: str) -> list[str]:
    """The lines of the command itself: torchrun has much to say of its own."""
    return [line for line in err.splitlines() if line.startswith(f"python -m ddas_gpu.{program}: ")]
