"""`python -m ddas_gpu.train`: train a network under an augmentation policy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ddas_gpu.cli import shell as commands
from ddas_gpu.cli.shell import exit_code, leave, prepare, stopped
from ddas_gpu.train.settings import TrainSettings, preset

if TYPE_CHECKING:
    from ddas_gpu.train.loop import Training

PROGRAM = "python -m ddas_gpu.train"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code.

    0 the network is trained, 2 something was wrong and one sentence said what, 128 + n signal n
    came and the run can be resumed.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    return exit_code(PROGRAM, lambda: run(parse(argv)))


def parse(argv: list[str]) -> TrainSettings:
    """The flags over the recipe's defaults or, with --resume, over the run's settings."""
    first = commands.first_look(argv, model=str)

    def of_run(folder: Path) -> TrainSettings:
        from ddas_gpu.runs.training_folder import read_settings

        return read_settings(folder)

    fresh = partial(preset, first.data, first.model, first.scale)
    return commands.parse(PROGRAM, argv, first, fresh, of_run)


def run(settings: TrainSettings) -> int:
    """Build everything, and only then touch the run folder; train; tell how it ended."""
    device = prepare(settings.run)
    # Everything below needs torch, which takes seconds to import.
    from ddas_gpu.distributed.agreement import digest, require_same_start
    from ddas_gpu.distributed.ranks import joined
    from ddas_gpu.report.writing import write_report
    from ddas_gpu.runs.folder import check_free
    from ddas_gpu.runs.shared_folder import open_for_all
    from ddas_gpu.runs.training_folder import TrainingFolder, read_schedule
    from ddas_gpu.runs.training_runner import carry_out
    from ddas_gpu.tasks.training_task import training_task
    from ddas_gpu.train.loop import Training
    from ddas_gpu.train.policies import open_policy

    out, resume = settings.run.out, settings.run.resume

    def open_folder() -> TrainingFolder:
        if resume:
            return TrainingFolder(out)
        return TrainingFolder.create(settings, schedule, task.samples())

    with joined(device, settings.run.timeout) as ranks:
        with ranks.together():
            if ranks.first and out is not None and not resume:
                check_free(out)
            schedule = read_schedule(out) if resume else open_policy(settings)
            task = training_task(settings, schedule, device, ranks)
            training = Training(settings, schedule, task, device, ranks)
        policies = "none" if schedule is None else digest(schedule.p_tp, schedule.p_o)
        require_same_start(ranks, settings, task.fingerprints, policies=policies)
        with open_for_all(ranks, open_folder, TrainingFolder, new=not resume) as folder:
            received = carry_out(training, folder)
            if received is not None:
                return stopped(PROGRAM, received, folder.path, training.steps)
            if ranks.first:
                _tell(training, folder.path, write_report(folder.path))
    return 0


def _tell(training: Training, folder: Path, report: Path) -> None:
    best, score = training.best, training.task.score
    print(f"best {score.name}: {score.show(best[score.key])}, after epoch {best['epoch'] + 1}")
    print(f"weights: {folder / 'best.pt'}")
    print(f"report: {report}")


if __name__ == "__main__":
    leave(main())
