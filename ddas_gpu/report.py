"""The command that draws a search or a training: `python -m ddas_gpu.report RUN [RUN…]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ddas_gpu.errors import sentence
from ddas_gpu.files import write_atomically

PROGRAM = "python -m ddas_gpu.report"


def write_report(run_folder: str | Path) -> Path:
    """Draw `report.html` into the folder of a run, finished or not; returns its path."""
    (report,) = write_reports([Path(run_folder)])
    return report


def write_reports(run_folders: Sequence[Path], comparison: Path | None = None) -> list[Path]:
    """Draw the report of each run, and their comparison where there are several.

    All pages are drawn before the first is written: one bad run leaves all files as they were.
    """
    from ddas_gpu.reporting import load_run, pages_for

    runs = [load_run(folder) for folder in run_folders]
    report_page, comparison_page = pages_for(runs)
    pages = {run.folder / "report.html": report_page(run) for run in runs}
    if len(runs) > 1:
        common = Path(os.path.commonpath([run.folder.resolve().parent for run in runs]))
        target = comparison or common / "compare.html"
        if not target.parent.is_dir():
            raise ValueError(f"{target.parent} is not a folder: the comparison cannot go there")
        if target.resolve() in {path.resolve() for path in pages}:
            raise ValueError(f"{target} is the report of a run: name another file for --out")
        pages[target] = comparison_page(runs)
    for path, page in pages.items():
        # Names of files need not be text; such characters cannot be written as UTF-8.
        write_atomically(path, page.encode(errors="replace"))
    return list(pages)


@dataclass(frozen=True)
class Report:
    """Draw report.html in the folder of each run; with several runs also compare them."""

    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint=""),
    ]
    """Folders that `python -m ddas_gpu.search` or `…train` wrote, finished or not."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Where the comparison goes, by default compare.html in the folder that holds the runs."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = tyro.cli(Report, prog=PROGRAM, args=arguments)
    try:
        # `runs/*` also names the comparison that an earlier call left there.
        runs = [path for path in options.runs if path.is_dir() or path.suffix != ".html"]
        if not runs:
            raise ValueError("give the folder of at least one run; see --help")
        if options.out is not None and len(runs) < 2:
            raise ValueError("--out names the comparison of several runs, but there is only one")
        for path in write_reports(runs, options.out):
            print(path)
    except (ValueError, OSError) as error:
        print(f"{PROGRAM}: {sentence(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
