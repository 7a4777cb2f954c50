"""`python -m ddas_gpu.scan ROOT`: list the images that cannot be read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ddas_gpu.errors import die_of_ctrl_c, exit_code_of

if __name__ == "__main__":
    die_of_ctrl_c()  # before the imports that take time

from ddas_gpu.data.scanning import open_root, scan_files

PROGRAM = "python -m ddas_gpu.scan"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code.

    0: all images can be read; 1: some cannot and are listed; 2: something else was wrong.
    """
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="List the images that cannot be read."
    )
    parser.add_argument("root", type=Path, help="a folder with one folder of images per class")
    parser.add_argument("--threads", type=int, help="by default as many as available cores")
    options = parser.parse_args(argv)
    return exit_code_of(PROGRAM, lambda: scan(options.root, options.threads))


def scan(root: Path, threads: int | None) -> int:
    """Say how much there is to scan, list the bad images, and return the exit code."""
    found = open_root(root)
    print(f"images: {len(found):,}, classes: {len(found.class_names):,}", file=sys.stderr)
    bad = scan_files(found.files, threads=threads)
    for image in bad:
        print(image)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
