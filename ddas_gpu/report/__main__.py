"""The command that writes reports: `python -m ddas_gpu.report RUN [RUN…]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ddas_gpu.errors import die_of_ctrl_c, exit_code_of

if __name__ == "__main__":
    die_of_ctrl_c()  # before the imports that take time

import tyro

from ddas_gpu.report.writing import write_reports

PROGRAM = "python -m ddas_gpu.report"


@dataclass(frozen=True)
class Report:
    """Write report.html into the folder of each run; several runs are also compared."""

    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint=""),
    ]
    """Folders that `python -m ddas_gpu.search` or `…train` wrote, finished or not."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """The file for the comparison; by default compare.html in the folder that holds the runs."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = tyro.cli(Report, prog=PROGRAM, args=arguments)
    return exit_code_of(PROGRAM, lambda: write(options))


def write(options: Report) -> int:
    """Write the pages; return the exit code."""
    # `runs/*` also matches the comparison that an earlier call wrote.
    runs = [path for path in options.runs if path.is_dir() or path.suffix != ".html"]
    if not runs:
        raise ValueError("give the folder of at least one run; see --help")
    if options.out is not None and len(runs) < 2:
        raise ValueError("--out names the comparison of several runs, but there is only one")
    for path in write_reports(runs, options.out):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
