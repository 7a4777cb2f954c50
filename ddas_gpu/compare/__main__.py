"""`python -m ddas_gpu.compare`: train under several policies and seeds, and compare them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ddas_gpu.errors import die_of_ctrl_c, stoppable

if __name__ == "__main__":
    die_of_ctrl_c()  # before the imports that take time

from ddas_gpu.cli import parsing
from ddas_gpu.cli.running import StoppedAtOnce, settings_of_run, stopped
from ddas_gpu.cli.shell import exit_code, leave
from ddas_gpu.compare.api import PAGE, run_all
from ddas_gpu.compare.settings import CompareSettings, compare_preset

PROGRAM = "python -m ddas_gpu.compare"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code.

    0: the page is written; 2: something was wrong and one sentence said what; 128 + n: signal n
    came and the comparison can be resumed.
    """
    argv = parsing.with_new_names(sys.argv[1:] if argv is None else list(argv))
    return exit_code(PROGRAM, lambda: run(parse(argv)))


def parse(argv: list[str]) -> CompareSettings:
    """Read the flags over the recipe's defaults or, with --resume, over the comparison's."""
    first = parsing.first_look(argv, model=str)
    fresh = partial(compare_preset, first.data, first.model, first.scale)

    def of_run(folder: Path) -> CompareSettings:
        return settings_of_run(folder, "compare", "comparison", CompareSettings)

    return parsing.parse(PROGRAM, argv, first, fresh, of_run)


def run(settings: CompareSettings) -> int:
    """Train and compare; return the exit code."""
    try:
        with stoppable():
            found, folder, ended = run_all(settings)
    except StoppedAtOnce as stop:
        return stopped(PROGRAM, settings, stop.number, stop.folder, "at once")
    if ended is not None and ended.received is not None:
        when = f"after step {ended.job.steps} of a training"
        return stopped(PROGRAM, settings, ended.received, folder, when)
    assert found is not None
    width = max(map(len, found.scores))
    for name in found.scores:
        print(f"{name:<{width}}  {found.mean_of(name)}")
    print(f"{found.headline()}.", found.advice() or "", sep="\n" if found.advice() else "")
    if found.kept is not None:
        print(f"{found.keeps()}: {folder / 'policy.json'}")
    print(f"report: {folder / PAGE}")
    return 0


if __name__ == "__main__":
    leave(main())
