"""`python -m ddas_gpu.scan ROOT`: name the images that cannot be read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ddas_gpu.data.scanning import scan_images

PROGRAM = "python -m ddas_gpu.scan"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code.

    0 all images can be read, 1 some cannot and are listed, 2 something else was wrong.
    """
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Name the images that are damaged.")
    parser.add_argument("root", type=Path, help="a folder with a folder of images a class")
    parser.add_argument("--threads", type=int, help="by default as many as the cores we may use")
    options = parser.parse_args(argv)
    try:
        bad = scan_images(options.root, threads=options.threads)
    except (ValueError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    for image in bad:
        print(image)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
