"""Compare the ratios of two benchmark runs: `python benchmarks/compare.py OLD.json NEW.json`.

The files are pytest-benchmark's (`make bench ARGS=--benchmark-json=NEW.json`). Times depend on the
machine and its load; ratios to a peer in the same run hardly do. Exits with 1 if a ratio fell by
more than 15 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

TOLERANCE = 0.15


def ratios(file: Path) -> dict[str, float]:
    """Return {benchmark: how many times faster than its peer}."""
    try:
        content = json.loads(file.read_text("utf-8"))
        found = {b["fullname"]: b["extra_info"].get("ratio") for b in content["benchmarks"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{file} is not a file of pytest-benchmark: {error}") from None
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def compare(old: dict[str, float], new: dict[str, float]) -> tuple[list[str], bool]:
    """Return a line for each benchmark in both, the worst first, and whether none fell."""
    both = sorted(old.keys() & new.keys(), key=lambda name: new[name] / old[name])
    lines = [f"{new[n] / old[n]:6.2f}  {old[n]:8.2f}× → {new[n]:8.2f}×  {n}" for n in both]
    return lines, all(new[name] >= (1 - TOLERANCE) * old[name] for name in both)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    options = parser.parse_args(arguments)
    lines, held = compare(ratios(options.old), ratios(options.new))
    if not lines:
        raise SystemExit("the two runs have no benchmark with a ratio in common")
    print("\n".join(lines))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
