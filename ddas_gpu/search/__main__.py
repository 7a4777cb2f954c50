"""`python -m ddas_gpu.search`: find the augmentation policy that helps a data set most."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddas_gpu.errors import die_of_ctrl_c

if __name__ == "__main__":
    die_of_ctrl_c()  # before the imports that take time

from ddas_gpu.cli import parsing
from ddas_gpu.cli.running import run_job, settings_of_run
from ddas_gpu.cli.shell import exit_code, leave
from ddas_gpu.search.presets import shape_of
from ddas_gpu.search.settings import SearchSettings, preset

if TYPE_CHECKING:
    import torch

    from ddas_gpu.distributed.ranks import Ranks
    from ddas_gpu.search.job import SearchJob

PROGRAM = "python -m ddas_gpu.search"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code.

    0: the policy is written; 2: something was wrong and one sentence said what; 128 + n: signal n
    came and the run can be resumed.
    """
    argv = parsing.with_new_names(sys.argv[1:] if argv is None else list(argv))
    return exit_code(PROGRAM, lambda: run(parse(argv)))


def parse(argv: list[str]) -> SearchSettings:
    """Read the flags over the preset's defaults or, with --resume, over the run's settings."""
    first = parsing.first_look(argv, sanity_check=str, space=Path)

    def fresh() -> SearchSettings:
        defaults = preset(first.data, first.sanity_check, first.scale)
        if first.space is not None:
            defaults = defaults.replace(**shape_of(first.space))
        return defaults

    def of_run(folder: Path) -> SearchSettings:
        return settings_of_run(folder, "search", "search", SearchSettings)

    return parsing.parse(PROGRAM, argv, first, fresh, of_run)


def run(settings: SearchSettings) -> int:
    """Search; return the exit code."""
    if settings.run.repeats > 1:
        from ddas_gpu.search.repeats import run_repeats

        return run_repeats(PROGRAM, settings)
    space = settings.search_space()

    def build(device: torch.device, ranks: Ranks) -> SearchJob:
        from ddas_gpu.search.algorithm import open_search
        from ddas_gpu.search.job import SearchJob

        return SearchJob(open_search(settings, space, device, ranks))

    return run_job(PROGRAM, settings, build)


if __name__ == "__main__":
    leave(main())
