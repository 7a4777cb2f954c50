"""Atomic writes."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write `content` to `path`; readers see the old file or the new one, never a part.

    The temporary file is in the same folder, because a rename is atomic only within a file system,
    and is flushed to disk before the rename, so that even a power cut leaves no partial file.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
