"""Remove trailing spaces and end files with one newline; exit with 1 if a file changed."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def main(names: list[str]) -> int:
    changed = False
    for path in map(Path, names):
        before = path.read_bytes()
        after = re.sub(rb"[ \t]+$", b"", before, flags=re.MULTILINE).rstrip(b"\n")
        after += b"\n" * bool(after)
        if after != before:
            path.write_bytes(after)
            print(f"mended {path}")
            changed = True
    return int(changed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
