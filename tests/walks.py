"""Counting the files of the package that some work runs through."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import ddas_gpu

PACKAGE = Path(ddas_gpu.__file__).parent


@contextmanager
def walked() -> Iterator[list[str]]:
    """Collect the files whose functions are called inside, in the order of their first call.

    Bodies of classes and modules do not count: only what a reader must follow.
    """
    files: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{PACKAGE}/"):
            if code.co_name != "<module>" and code.co_flags & 0x1:  # functions, not class bodies
                files.setdefault(str(Path(code.co_filename).relative_to(PACKAGE)))

    found: list[str] = []
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        found.extend(files)
