"""`python -m ddas_gpu.doctor`: check this machine in less than a minute."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddas_gpu.errors import die_of_ctrl_c, stoppable

if __name__ == "__main__":
    die_of_ctrl_c()  # before the imports that take time

from ddas_gpu.cli.shell import exit_code, leave

if TYPE_CHECKING:
    from ddas_gpu.doctor.checks import Check, Result

PROGRAM = "python -m ddas_gpu.doctor"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code.

    0: nothing failed; 1: some check failed; 2: a flag was wrong.
    """
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Check this machine: what is installed, whether every op returns Pillow's "
        "bytes on the CPU and on the GPU, and how fast it is.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to a file")
    options = parser.parse_args(argv)
    return exit_code(PROGRAM, lambda: run(options.json))


def run(file: Path | None) -> int:
    """Run all checks, print the table and write the file; return the exit code."""
    if file is not None and (file.is_dir() or not os.access(file.parent, os.W_OK)):
        raise ValueError(f"--json {file} cannot be written: give a file in a folder of yours")
    start = time.perf_counter()
    from ddas_gpu.cli import groups, shell

    shell.prepare(groups.RunSettings(), fixed_shapes=True)  # the threads of searches and trainings
    from ddas_gpu.doctor import printing
    from ddas_gpu.doctor.checks import all_checks
    from ddas_gpu.files import write_atomically

    checks = all_checks()
    width = max(len(check.title) for check in checks.values())
    results = []
    with stoppable():
        for result in run_checks(checks.values()):
            results.append(result)
            print(printing.row(result, width), flush=True)
    seconds = time.perf_counter() - start
    print(f"\n{printing.summary(results, seconds)}")
    if file is not None:
        write_atomically(file, printing.to_bytes(results, seconds))
        print(f"written: {file}")
    return 0 if printing.passed(results) else 1


def run_checks(checks: Iterable[Check]) -> Iterator[Result]:
    """Run the checks one after the other, on this machine."""
    from ddas_gpu.doctor.machine import Machine, reason_without_gpu

    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), reason_without_gpu())
        for check in checks:
            yield check.run(machine)


if __name__ == "__main__":
    leave(main())
