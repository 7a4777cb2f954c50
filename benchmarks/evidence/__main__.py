"""`python -m benchmarks.evidence`: run what is not recorded yet, then write the page.

run      trainings and searches, hours on two cores; results.jsonl gets a line for each
render   docs/evidence.md, its pictures and the table of the README, from results.jsonl
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .protocol import STAGES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", nargs="?", choices=("all", "run", "render"), default="all")
    parser.add_argument("--work", type=Path, default=Path("runs/evidence"), help="for the images")
    parser.add_argument("--results", type=Path, default=HERE / "results.jsonl")
    parser.add_argument("--stage", action="append", choices=STAGES)
    parser.add_argument("--only", default="", help="jobs whose names begin so: digits/0/rotated")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then begin no job")
    options = parser.parse_args(arguments)
    if options.what != "render":
        from .jobs import fresh_bench, run_all

        bench = fresh_bench(options.work, options.results)
        run_all(bench, tuple(options.stage or STAGES), options.only, options.seconds)
    if options.what != "run":
        from .page import write_page

        write_page(options.results, ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
