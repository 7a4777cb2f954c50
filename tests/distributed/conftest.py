"""Ranks are slow to start: they start once for two and once for four, and do everything then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rank_processes import on_ranks
from rank_scenarios import METHODS, everything
from small_coco import write_coco


@pytest.fixture(params=[2, 4], ids=["2 ranks", "4 ranks"])
def answers(request, started, boxes) -> list[dict[str, Any]]:
    """What every rank has found."""
    count = request.param
    if count not in started:
        methods = METHODS if count == 2 else METHODS[:1]
        started[count] = on_ranks(count, everything, boxes, methods)
    return started[count]


@pytest.fixture(scope="session")
def started() -> dict[int, list[dict[str, Any]]]:
    """The answers so far, by the number of ranks."""
    return {}


@pytest.fixture(scope="session")
def boxes(tmp_path_factory) -> Path:
    """Images with boxes: nine to train on and five to test on."""
    return write_coco(tmp_path_factory.mktemp("coco"))
