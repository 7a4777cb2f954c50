"""Run a job from its settings: join the ranks, open the folder, run, report."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddas_gpu.cli.settings import Own
from ddas_gpu.cli.shell import prepare
from ddas_gpu.distributed import torchrun
from ddas_gpu.errors import Stopped, signal_of, stoppable
from ddas_gpu.tasks.facts import FACTS

if TYPE_CHECKING:
    import torch

    from ddas_gpu.distributed.ranks import Ranks
    from ddas_gpu.runs.job import Job


def settings_of_run(folder: Path, command: str, name: str, kind: type[Own]) -> Own:
    """Return the settings of the run of `command` in `folder`."""
    from ddas_gpu.runs.run_folder import read_config  # imports torch

    values = read_config(folder, command, name)
    try:
        return kind.from_json(values)
    except (ValueError, TypeError) as error:
        where = folder / "config.json"
        raise ValueError(f"{where} is not the configuration of a {name}: {error}") from None


@dataclass(frozen=True)
class Ended:
    """A run that is over, or was stopped."""

    job: Job
    folder: Path | None  # None for a run that has written nothing
    report: Path | None  # on rank 0, of a finished run
    received: signal.Signals | None  # the signal that stopped it


def run_job(program: str, settings: Any, build: Callable[[torch.device, Ranks], Job]) -> int:
    """Run a job as a command; return the exit code."""
    device = prepare(settings.run, FACTS[settings.spec.task].fixed_shapes)
    try:
        with stoppable():
            ended = carry_out(settings, build, device)
    except StoppedAtOnce as stop:
        return stopped(program, settings, stop.number, stop.folder, "at once")
    job, folder = ended.job, ended.folder
    assert folder is not None
    if ended.received is not None:
        return stopped(program, settings, ended.received, folder, f"after step {job.steps}")
    if job.ranks.first:
        print(*job.summary(folder), f"report: {ended.report}", sep="\n")
    return 0


def carry_out(
    settings: Any,
    build: Callable[[torch.device, Ranks], Job],
    device: torch.device,
    writes: bool = True,
    quiet: bool = False,
) -> Ended:
    """Build a job, and only then touch the run folder; run it to its end or to a signal.

    writes: False keeps nothing on the disk; quiet: True prints no progress.
    """
    # Everything here needs torch, which takes seconds to import.
    from ddas_gpu.distributed.agreement import require_same_start
    from ddas_gpu.distributed.ranks import joined
    from ddas_gpu.report.writing import write_report
    from ddas_gpu.runs.run_folder import NoFolder, RunFolder, check_free
    from ddas_gpu.runs.runner import run_to_end
    from ddas_gpu.runs.shared_folder import open_for_all
    from ddas_gpu.runs.tensorboard import require_tensorboard

    out, resume = settings.run.out, settings.run.resume

    def open_folder() -> RunFolder:
        if resume:
            return RunFolder(out)
        values, task, files = job.settings.to_json(), settings.spec.task, job.first_files()
        return RunFolder.create(out, settings.data.data, job.command, task, values, files)

    found = out if resume and writes else None  # the folder, as soon as there is one to resume
    try:
        with joined(device, settings.run.timeout) as ranks:
            with ranks.together():
                if settings.run.tensorboard:
                    require_tensorboard()
                if ranks.first and writes and out is not None and not resume:
                    check_free(out)
                job = build(device, ranks)
            require_same_start(ranks, job.settings, job.fingerprints, **job.facts())
            opened = open_for_all(ranks, open_folder) if writes else NoFolder()
            with opened as folder:
                found = folder.path if writes else None
                if ranks.first and not quiet:
                    print(*job.overview(), job.greeting(folder.path), sep="\n", file=sys.stderr)
                received = run_to_end(
                    job,
                    folder,
                    settings.run.checkpoint_seconds,
                    after_epochs=settings.run.checkpoint_epochs,
                    quiet=quiet,
                    tensorboard=settings.run.tensorboard,
                )
                finished = received is None and folder.writes
                report = write_report(folder.path) if finished else None
                return Ended(job, found, report, received)
    except KeyboardInterrupt as stop:  # a signal before the first step, after the last, or twice
        if found is None:
            raise
        raise StoppedAtOnce(signal_of(stop), found) from None


class StoppedAtOnce(Stopped):
    """A signal outside the steps of a run whose folder is there."""

    def __init__(self, number: int, folder: Path) -> None:
        super().__init__(number)
        self.folder = folder


def stopped(program: str, settings: Any, received: int, folder: Path, when: str) -> int:
    """Print how to continue after a signal; return the exit code."""
    if torchrun.launched():
        program = program.replace("python", "torchrun …")
    again = f"{program} --resume --out {shlex.quote(str(folder))}"
    if ":" in settings.training.model:  # see `parsing.require_model`
        again += f" --model {shlex.quote(settings.training.model)}"
    if torchrun.rank() == 0:
        print(f"stopped {when}; go on with: {again}", file=sys.stderr)
    return 128 + received
