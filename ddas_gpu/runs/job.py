"""What a search or a training must offer so that `runs.runner` can run it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from ddas_gpu.distributed.ranks import Ranks

Files = dict[str, bytes]  # {name in the run folder: content}
Metrics = dict[str, Any]  # a line of metrics.jsonl


class Job(Protocol):
    """Work in steps and epochs that can stop after any step and continue from its state."""

    command: str
    """The command in config.json, such as "train"."""
    name: str
    """What the job is called in messages and in the checkpoint, such as "training"."""
    settings: Any
    """Of the command, fitted to the data."""
    ranks: Ranks
    total_steps: int
    steps_per_epoch: int

    def images_until(self, step: int) -> int:
        """Return how many images the first steps process on all ranks together."""
        ...

    @property
    def steps(self) -> int:
        """Steps done so far."""
        ...

    @property
    def lines(self) -> int:
        """Lines of metrics.jsonl after the steps so far."""
        ...

    @property
    def may_stop(self) -> bool:
        """Whether the ranks exchange signals after this step; it must be the same on all."""
        ...

    def fingerprints(self) -> list[int]:
        """Return numbers that tell these images from others."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what else must be the same on all ranks before the first step."""
        ...

    def first_files(self) -> Files:
        """Return the files that a new run folder starts with."""
        ...

    def start(self) -> None:
        """Prepare the first step of this process, after the state was restored."""
        ...

    def step(self) -> Metrics | None:
        """Do one step; return its line of metrics.jsonl if there is one per step."""
        ...

    def finish_epoch(self) -> Metrics | None:
        """End an epoch after its last step; return its line if there is one per epoch."""
        ...

    def epoch_files(self) -> Files:
        """Return the files to replace after an epoch, before its line is written."""
        ...

    def final_files(self) -> Files:
        """Return the files to write after the last step."""
        ...

    def status(self) -> str:
        """Return the latest numbers, for the progress."""
        ...

    def overview(self) -> list[str]:
        """Return what was found, to print before the run begins."""
        ...

    def greeting(self, folder: Path) -> str:
        """Return what to print before the first step."""
        ...

    def summary(self, folder: Path) -> list[str]:
        """Return what to print after the last step."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next step depends on."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        ...
