"""Two kinds of runs, searches and trainings, and the pages of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ddas_gpu.report import run as searches
from ddas_gpu.report.comparison import comparison_page
from ddas_gpu.report.page import report_page
from ddas_gpu.report.training_comparison import training_comparison
from ddas_gpu.report.training_page import training_page
from ddas_gpu.report.training_run import TrainingRun, load_training, made_by

AnyRun = searches.Run | TrainingRun


def load_run(folder: str | Path) -> AnyRun:
    """Read the folder of a search or of a training."""
    folder = Path(folder)
    command = made_by(folder)
    if command == "compare":
        raise ValueError(
            f"{folder} is a comparison, not a run: ddas compare --resume --out {folder} writes its "
            f"page again, and its trainings are {folder}/*/*"
        )
    return load_training(folder) if command == "train" else searches.load_run(folder)


def pages_for(runs: Sequence[AnyRun]) -> tuple[Callable[[Any], str], Callable[[Any], str]]:
    """Return the function for the page of one of these runs, and that for their comparison."""
    kinds = {isinstance(run, TrainingRun) for run in runs}
    if len(kinds) > 1:
        raise ValueError("searches and trainings cannot be compared: give the runs of one kind")
    return (training_page, training_comparison) if True in kinds else (report_page, comparison_page)
