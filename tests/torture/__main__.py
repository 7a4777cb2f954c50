"""`make torture`: attack runs and readers, and write the counts into docs/reliability.md.

PYTHONPATH=tests python -m torture [--seed N] [--runs SHARE] [--inputs SHARE] [--write FILE]
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # children are forked: no threads before that

from search_commands import search
from torture.faults import Faults
from torture.fuzzing import fuzz
from train_commands import train

MARK = "<!-- figures: written by `make torture` -->\n"


def attack(folder: Path, seed: int, runs: float, inputs: float) -> list[str]:
    """Return the lines of the table."""
    lines = ["| attack | count | outcome |", "| --- | ---: | --- |"]

    def add(name: str, count: int, outcome: str) -> None:
        lines.append(f"| {name} | {count:,} | {outcome} |")
        print(lines[-1], flush=True)

    same = "all end with the bytes of an undisturbed run"
    for command, kills in ((search, 100), (train, 50)):
        faults = Faults(command, folder / command.name, random.Random(seed))
        counts = faults.killed(max(1, round(runs * kills)))
        early = f"{counts['before config.json']} before the run existed"
        add(
            f"{command.name}: kills at random moments",
            counts["kills"],
            f"{counts['runs']} runs, {early}; {same}",
        )
        counts = faults.out_of_space(max(1, round(runs * 30)))
        add(f"{command.name}: no space in a file", counts["runs"], f"one sentence each; {same}")
        counts = faults.rivals(max(1, round(runs * 10)))
        add(
            f"{command.name}: starts of four processes on one folder",
            counts["rounds"],
            f"one runs, {counts['refused']} refused; {same}",
        )
    total: Counter[str] = Counter()
    for name, counts in fuzz(folder / "fuzz", seed, inputs).items():
        add(
            f"damaged: {name}",
            counts.total(),
            f"{counts['read']:,} read, {counts['refused']:,} refused",
        )
        total += counts
    add("damaged inputs in all", total.total(), "no crash, no hang, no other exception")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=float, default=1.0, help="share of the disturbed runs")
    parser.add_argument("--inputs", type=float, default=1.0, help="share of the damaged inputs")
    parser.add_argument("--write", type=Path, help="replace the figures in this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = attack(Path(folder), options.seed, options.runs, options.inputs)
    if options.write is not None:
        head, mark, _ = options.write.read_text("utf-8").partition(MARK)
        table = "\n".join(lines)
        options.write.write_text(f"{head}{mark}\nSeed {options.seed}.\n\n{table}\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
