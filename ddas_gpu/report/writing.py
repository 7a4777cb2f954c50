"""Writing the pages of runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddas_gpu.files import write_atomically

if TYPE_CHECKING:
    from ddas_gpu.report.score_differences import ScoreComparison


def write_report(run_folder: str | Path) -> Path:
    """Write `report.html` into the folder of a run, finished or not; return its path."""
    (report,) = write_reports([Path(run_folder)])
    return report


def write_reports(run_folders: Sequence[Path], comparison: Path | None = None) -> list[Path]:
    """Write the report of each run, and a comparison if there are several; return the paths.

    All pages are made before the first is written: if a run is damaged, no file changes.
    """
    from ddas_gpu.report.kinds import load_run, pages_for  # NumPy, which --help does not need

    runs = [load_run(folder) for folder in run_folders]
    report_page, comparison_page = pages_for(runs)
    pages = {run.folder / "report.html": report_page(run) for run in runs}
    if len(runs) > 1:
        common = Path(os.path.commonpath([run.folder.resolve().parent for run in runs]))
        target = comparison or common / "compare.html"
        if not target.parent.is_dir():
            raise ValueError(f"{target.parent} is not a folder: the comparison cannot go there")
        if target.resolve() in {path.resolve() for path in pages}:
            raise ValueError(f"{target} is the report of a run: name another file for --out")
        pages[target] = comparison_page(runs)
    for path, page in pages.items():
        # File names may hold bytes that are not text, which UTF-8 cannot encode.
        write_atomically(path, page.encode(errors="replace"))
    return list(pages)


def write_comparison(
    folders: Mapping[str, Sequence[Path]], subject: str | None, page: Path, table: Path
) -> ScoreComparison:
    """Compare trainings, {policy: folders of its seeds}; write the page and the table as JSON.

    subject: the policy in question, if there is one.
    """
    from ddas_gpu.report.score_differences import ScoreComparison
    from ddas_gpu.report.seeds import Group
    from ddas_gpu.report.training_comparison import comparison_of
    from ddas_gpu.report.training_run import load_training

    groups = []
    for name, places in folders.items():
        runs = [load_training(folder) for folder in places]
        groups.append(Group(name, {int(run.settings["seed"]): run for run in runs}))
    found = ScoreComparison(groups, subject)
    write_atomically(page, comparison_of(found).encode(errors="replace"))
    content = json.dumps(found.to_json(), indent=2, ensure_ascii=False)
    write_atomically(table, f"{content}\n".encode())
    return found
