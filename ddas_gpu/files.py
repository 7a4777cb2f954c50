"""Atomic writes."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write `content` to `path`; readers see the old file or the new one, never a part.

    The temporary file is in the same folder, because a rename is atomic only within a file system,
    has a name of its own, because several processes may write at once, and is flushed to disk
    before the rename, so that even a power cut leaves no partial file.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error says more
            temporary.unlink()
        raise


def is_temporary(path: Path) -> bool:
    """Return whether `path` is what a killed `write_atomically` left behind."""
    return path.name.startswith(".") and path.name.endswith(".part")
