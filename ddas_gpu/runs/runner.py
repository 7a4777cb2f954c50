"""Carrying a search out: step, write it down, checkpoint, and stop in good order when asked to."""

from __future__ import annotations

import io
import signal
import threading
import time
from types import FrameType
from typing import Any

from ddas_gpu.distributed import torchrun
from ddas_gpu.distributed.agreement import digest, require_same
from ddas_gpu.distributed.ranks import Ranks, in_touch
from ddas_gpu.runs.folder import POLICY, RunFolder
from ddas_gpu.runs.progress import Progress
from ddas_gpu.search.algorithm import Search


class Interrupts:
    """While this is entered, the first Ctrl-C or SIGTERM is only noted; a second one acts.

    Under torchrun no second one does: torchrun sends every rank what the terminal has sent it
    already, and kills those that do not end within half a minute.
    """

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
        if not torchrun.launched():
            signal.signal(number, self._before[self.received])


def agreed(ranks: Ranks, received: signal.Signals | None) -> signal.Signals | None:
    """A signal that any rank has received: all must stop after the same step."""
    number = ranks.largest(received or 0)
    return signal.Signals(number) if number else None


def carry_out(search: Search, folder: RunFolder) -> signal.Signals | None:
    """Search to the end and write the policy; or return the signal that came before."""
    ranks = search.ranks
    data = search.fingerprints()
    seconds = search.settings.run.checkpoint_seconds

    def checkpoint() -> float:
        folder.save_checkpoint({"data": data, "search": search.state_dict()})
        return time.monotonic()

    with ranks.together():
        restore(search, "search", folder, data)
        folder.start_metrics(search.steps)
        last = checkpoint()
    require_same(ranks, {"numbers of steps in its checkpoint": search.steps})
    ranks.copy_from_first(search.model.state_dict().values())
    stream = None if ranks.first else io.StringIO()
    total, an_epoch = search.total_steps, search.steps_per_epoch
    progress = Progress(search.space, search.steps, total, an_epoch, stream)
    received = None
    with Interrupts() as interrupts, progress:
        while not search.finished and received is None:
            with in_touch():
                metrics = search.step()
            folder.add_metrics(metrics)
            progress.update(metrics, search.parameters.op_probabilities)
            end_of_epoch = search.steps % search.steps_per_epoch == 0
            if end_of_epoch:
                require_same_state(search)
            if end_of_epoch or time.monotonic() - last >= seconds:
                last = checkpoint()
            received = agreed(ranks, interrupts.received)
        if not search.finished:
            checkpoint()
            return received
    if folder.writes:
        search.schedule().save(folder.path / POLICY)
    return None


def restore(run: Any, part: str, folder: RunFolder, data: list[int]) -> None:
    """Let a search or a training go on from the last checkpoint, if there is one.

    part: what its state is called there. data: the fingerprints of the images.
    """
    state = folder.load_checkpoint()
    if state is None:
        return
    if not {"data", part} <= state.keys():
        raise ValueError(f"the checkpoint in {folder.path} is not one of a {part}")
    if state["data"] != data:
        raise ValueError(
            f"the run in {folder.path} was started with other images than there are now"
        )
    run.load_state_dict(state[part])


def require_same_state(search: Search) -> None:
    """All ranks have taken the same steps, bit by bit; if not, the last checkpoint is the last
    thing to trust."""
    if search.ranks.count == 1:
        return
    alpha = digest(search.parameters.alpha_tp, search.parameters.alpha_o)
    facts = {"policy parameters (α)": alpha, "weights": digest(*search.weights)}
    when = f" after epoch {search.steps // search.steps_per_epoch}"
    require_same(search.ranks, facts, when)
