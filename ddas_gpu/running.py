"""Carrying a search out: step, write it down, checkpoint, and stop in good order when asked to."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

from ddas_gpu.progress import Progress
from ddas_gpu.runs import POLICY, RunFolder
from ddas_gpu.searching import Search


class Interrupts:
    """While this is entered, the first Ctrl-C or SIGTERM is only noted; a second one acts."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

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
        signal.signal(number, self._before[self.received])


def carry_out(search: Search, folder: RunFolder) -> signal.Signals | None:
    """Search to the end and write the policy; or return the signal that came before."""
    data = [search.train.fingerprint(), search.validation.fingerprint()]
    seconds = search.settings.run.checkpoint_seconds

    def checkpoint() -> float:
        folder.save_checkpoint({"data": data, "search": search.state_dict()})
        return time.monotonic()

    state = folder.load_checkpoint()
    if state is not None:
        if state["data"] != data:
            raise ValueError(
                f"the run in {folder.path} was started with other images than there are now"
            )
        search.load_state_dict(state["search"])
    folder.start_metrics(search.steps)
    last = checkpoint()
    progress = Progress(search.space, search.steps, search.total_steps, search.steps_per_epoch)
    with Interrupts() as interrupts, progress:
        while not search.finished and interrupts.received is None:
            metrics = search.step()
            folder.add_metrics(metrics)
            progress.update(metrics, search.parameters.op_probabilities)
            end_of_epoch = search.steps % search.steps_per_epoch == 0
            if end_of_epoch or time.monotonic() - last >= seconds:
                last = checkpoint()
        if not search.finished:
            checkpoint()
            return interrupts.received
    search.schedule().save(folder.path / POLICY)
    return None
