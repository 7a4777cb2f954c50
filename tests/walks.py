"""Following some work through the files of the package."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import ddas_gpu

PACKAGE = Path(ddas_gpu.__file__).parent
PROJECT = Path(__file__).parent.parent / "pyproject.toml"


@contextmanager
def walked() -> Iterator[dict[str, str | None]]:
    """Collect the files whose functions are called inside, and from which file each is reached.

    They are in the order of their first call. Bodies of classes and modules do not count: only
    what a reader must follow.
    """
    files: dict[str, str | None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_name == "<module>" or not code.co_flags & 0x1:
            return  # no function
        file = own_file(frame)
        if file is not None and file not in files:
            files[file] = caller_of(frame)

    found: dict[str, str | None] = {}
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        found.update(files)


def own_file(frame: FrameType) -> str | None:
    """Return the file of a frame, below the package; None if it is somebody else's."""
    name = frame.f_code.co_filename
    return name.removeprefix(f"{PACKAGE}/") if name.startswith(f"{PACKAGE}/") else None


def caller_of(frame: FrameType) -> str | None:
    """Return the file of the package that the call came from, through whatever libraries."""
    above = frame.f_back
    while above is not None and own_file(above) is None:
        above = above.f_back
    return None if above is None else own_file(above)


def steps_back(files: dict[str, str | None]) -> list[tuple[str, str]]:
    """Return the steps of a walk that first reach a file from a room of a lower layer."""
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    project = tomllib.loads(PROJECT.read_text("utf-8"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    lines = enumerate(contract["layers"])
    level = {room.strip(): number for number, line in lines for room in line.split("|")}

    def level_of(file: str) -> int:
        return level[file.partition("/")[0].removesuffix(".py")]

    steps = ((caller, file) for file, caller in files.items() if caller is not None)
    return [(caller, file) for caller, file in steps if level_of(file) < level_of(caller)]
