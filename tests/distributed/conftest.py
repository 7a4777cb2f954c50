"""Ranks are slow to start: they start once for two and once for four, and do everything then."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rank_processes import on_ranks
from rank_scenarios import METHODS, everything
from small_coco import write_coco


class Started(NamedTuple):
    """What every rank has found, and the folder that they had."""

    answers: list[dict[str, Any]]
    folder: Path


@pytest.fixture(scope="session")
def starts() -> dict[int, Started]:
    """So far, by the number of ranks."""
    return {}


@pytest.fixture(
    params=[2, pytest.param(4, marks=pytest.mark.slow)],
    ids=["2 ranks", "4 ranks"],
)
def started(request, starts, boxes, tmp_path_factory) -> Started:
    count = request.param
    if count not in starts:
        folder = tmp_path_factory.mktemp("shared")
        methods = METHODS if count == 2 else METHODS[:1]
        starts[count] = Started(on_ranks(count, everything, folder, boxes, methods), folder)
    return starts[count]


@pytest.fixture
def answers(started) -> list[dict[str, Any]]:
    return started.answers


@pytest.fixture(scope="session")
def boxes(tmp_path_factory) -> Path:
    """Images with boxes: nine to train on and five to test on."""
    return write_coco(tmp_path_factory.mktemp("coco"))
