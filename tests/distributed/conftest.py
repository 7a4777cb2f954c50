"""Ranks are slow to start: they start once for two and once for four, and do everything then."""

from __future__ import annotations

from typing import Any

import pytest
from rank_processes import on_ranks
from rank_scenarios import METHODS, everything


@pytest.fixture(params=[2, 4], ids=["2 ranks", "4 ranks"])
def answers(request, started, coco_root_if_any) -> list[dict[str, Any]]:
    """What every rank has found."""
    count = request.param
    if count not in started:
        methods = METHODS if count == 2 else METHODS[:1]
        started[count] = on_ranks(count, everything, coco_root_if_any, methods)
    return started[count]


@pytest.fixture(scope="session")
def started() -> dict[int, list[dict[str, Any]]]:
    """The answers so far, by the number of ranks."""
    return {}


@pytest.fixture(scope="session")
def coco_root_if_any(request):
    try:
        return request.getfixturevalue("coco_root")
    except pytest.skip.Exception:
        return None
