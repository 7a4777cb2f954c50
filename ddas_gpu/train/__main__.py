"""`python -m ddas_gpu.train`: train a network under an augmentation policy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ddas_gpu.errors import die_of_ctrl_c

if __name__ == "__main__":
    die_of_ctrl_c()  # before the imports that take time

from ddas_gpu.cli import parsing
from ddas_gpu.cli.running import run_job, settings_of_run
from ddas_gpu.cli.shell import exit_code, leave
from ddas_gpu.train.settings import TrainSettings, preset

if TYPE_CHECKING:
    import torch

    from ddas_gpu.distributed.ranks import Ranks
    from ddas_gpu.train.job import TrainingJob

PROGRAM = "python -m ddas_gpu.train"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code.

    0: the network is trained; 2: something was wrong and one sentence said what; 128 + n: signal n
    came and the run can be resumed.
    """
    argv = parsing.with_new_names(sys.argv[1:] if argv is None else list(argv))
    return exit_code(PROGRAM, lambda: run(parse(argv)))


def parse(argv: list[str]) -> TrainSettings:
    """Read the flags over the recipe's defaults or, with --resume, over the run's settings."""
    first = parsing.first_look(argv, model=str)
    fresh = partial(preset, first.data, first.model, first.scale)

    def of_run(folder: Path) -> TrainSettings:
        return settings_of_run(folder, "train", "training", TrainSettings)

    return parsing.parse(PROGRAM, argv, first, fresh, of_run)


def run(settings: TrainSettings) -> int:
    """Train; return the exit code."""

    def build(device: torch.device, ranks: Ranks) -> TrainingJob:
        from ddas_gpu.runs.run_folder import read_schedule
        from ddas_gpu.train.job import TrainingJob
        from ddas_gpu.train.loop import open_training
        from ddas_gpu.train.policies import open_policy

        resumed = settings.run.out if settings.run.resume else None
        if resumed is None or settings.policy.policy == "none":
            schedule = open_policy(settings)
        else:
            schedule = read_schedule(resumed)
        return TrainingJob(open_training(settings, schedule, device, ranks))

    return run_job(PROGRAM, settings, build)


if __name__ == "__main__":
    leave(main())
