"""The loop that runs a job: step, log, checkpoint, and stop cleanly on a signal."""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from ddas_gpu.distributed import torchrun
from ddas_gpu.distributed.agreement import require_same
from ddas_gpu.distributed.ranks import Ranks
from ddas_gpu.runs.job import Job
from ddas_gpu.runs.progress import Progress
from ddas_gpu.runs.run_folder import RunFolder

Handler = Callable[[int, FrameType | None], Any] | int | None  # what `signal.signal` takes


class Interrupts:
    """While this is entered, the first Ctrl-C or SIGTERM is only noted; a second one acts.

    Under torchrun no second one does: torchrun sends every rank what the terminal has sent it
    already, and kills those that do not end within half a minute.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # others cannot set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        if not torchrun.launched():
            signal.signal(number, self._before[self.received])


def agreed(ranks: Ranks, received: signal.Signals | None) -> signal.Signals | None:
    """Return a signal that any rank has received: all must stop after the same step."""
    number = ranks.largest(received or 0)
    return signal.Signals(number) if number else None


def run_to_end(
    job: Job,
    folder: RunFolder,
    checkpoint_seconds: float,
    *,
    after_epochs: bool = True,
    quiet: bool = False,
    tensorboard: bool = False,
) -> signal.Signals | None:
    """Run a job to its end and write its files; or return the signal that stopped it.

    after_epochs: write a checkpoint after every epoch, not only after the last.
    """
    ranks, images = job.ranks, job.fingerprints()

    def checkpoint() -> float:
        folder.save_checkpoint({"data": images, job.name: job.state_dict()})
        return time.monotonic()

    with ranks.together():
        restore(job, folder, images)
        folder.start_metrics(job.lines, tensorboard)
        last = checkpoint()
    require_same(ranks, {"numbers of steps in its checkpoint": job.steps})
    job.start()
    received = None
    with Interrupts() as interrupts, _progress(job, quiet) as progress:
        while job.steps < job.total_steps and received is None:
            end_of_epoch = advance(job, folder)
            progress.update(job.status())
            due = job.steps == job.total_steps or (end_of_epoch and after_epochs)
            if due or time.monotonic() - last >= checkpoint_seconds:
                last = checkpoint()
            if job.may_stop:
                received = agreed(ranks, interrupts.received)
        if job.steps < job.total_steps:
            checkpoint()
            return received
    if folder.writes:
        if have_changed(job, images):
            print("the images were changed during the run: it cannot be repeated", file=sys.stderr)
        folder.write(job.final_files())
    return None


def have_changed(job: Job, images: list[int]) -> bool:
    """Return whether the images have other fingerprints than at the start, or are gone."""
    try:
        return job.fingerprints() != images
    except OSError:
        return True


def _progress(job: Job, quiet: bool) -> Progress:
    stream = None if job.ranks.first and not quiet else io.StringIO()
    return Progress(job.steps, job.total_steps, job.steps_per_epoch, job.images_until, stream)


def advance(job: Job, folder: RunFolder) -> bool:
    """Do one step and log it; return whether it was the last of an epoch."""
    folder.add_metrics(job.step())
    if job.steps % job.steps_per_epoch:
        return False
    metrics = job.finish_epoch()
    if folder.writes:
        folder.write(job.epoch_files())
    folder.add_metrics(metrics)
    return True


def restore(job: Job, folder: RunFolder, images: list[int]) -> None:
    """Load the last checkpoint into a job, if there is one.

    images: their fingerprints now.
    """
    state = folder.load_checkpoint()
    if state is None:
        return
    if not {"data", job.name} <= state.keys():
        raise ValueError(f"the checkpoint in {folder.path} is not one of a {job.name}")
    if state["data"] != images:
        raise ValueError(
            f"the run in {folder.path} was started with other images than there are now"
        )
    try:
        job.load_state_dict(state[job.name])
        steps = job.steps
        if type(steps) is not int or not 0 <= steps <= job.total_steps:
            raise ValueError(f"it is of step {steps!r}")
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the checkpoint in {folder.path} is not one of this {job.name}: {reason}"
        ) from None
