"""The table that the command prints, and the JSON file."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import ddas_gpu
from ddas_gpu.doctor.checks import FAILED, MARKS, OK, UNCHECKED, Result

FORMAT = "ddas_gpu doctor"
VERSION = 1
WORDS = {OK: "passed", FAILED: "failed", UNCHECKED: "could not be checked here"}


def row(result: Result, width: int) -> str:
    """Return a line of the table: the mark, what was checked in `width` columns, what was found."""
    return f"{MARKS[result.status]} {result.title:<{width}}  {result.text}"


def summary(results: Sequence[Result], seconds: float) -> str:
    """Return the last line: how many checks ended how."""
    counts = Counter(result.status for result in results)
    parts = [f"{MARKS[s]} {counts[s]} {words}" for s, words in WORDS.items() if counts[s]]
    return f"{', '.join(parts)}; {seconds:.0f} s"


def passed(results: Sequence[Result]) -> bool:
    return not any(result.status == FAILED for result in results)


def to_json(results: Sequence[Result], seconds: float) -> dict[str, Any]:
    """Return everything that was found."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "ddas_gpu": ddas_gpu.__version__,
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(seconds, 2),
        "passed": passed(results),
        "checks": [dataclasses.asdict(result) for result in results],
    }


def to_bytes(results: Sequence[Result], seconds: float) -> bytes:
    """Return the JSON file. It is sent to others: the home folder, with the user's name, is ~."""
    text = json.dumps(to_json(results, seconds), ensure_ascii=False, indent=1, allow_nan=False)
    home = str(Path.home())
    return f"{text if home == '/' else text.replace(home, '~')}\n".encode()
