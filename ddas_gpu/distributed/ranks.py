"""The processes of a run, and the few things they tell each other."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from ddas_gpu import streams
from ddas_gpu.distributed import torchrun
from ddas_gpu.distributed.shares import Share
from ddas_gpu.errors import LostContact, Refused, sentence
from ddas_gpu.streams import Stream


class Ranks:
    """This process among `count`. A run without torchrun has one rank, which tells nobody anything.

    Every method but `share` and `seed_network` must be called by all ranks, in the same order.
    """

    def __init__(self, rank: int = 0, count: int = 1, device: torch.device | str = "cpu") -> None:
        self.rank, self.count = rank, count
        self.device = torch.device(device)  # where NCCL or gloo finds what is to be reduced

    @property
    def first(self) -> bool:
        """Rank 0 writes, prints and plots; the others only compute."""
        return self.rank == 0

    def share(self, flag: str, size: int, ranks_at_start: int) -> Share:
        """This rank's part of a batch, `size` images on each of the ranks that began the run.

        On more or fewer ranks now, the whole batch stays what it was.
        """
        whole = size * ranks_at_start
        if whole % self.count:
            raise ValueError(
                f"{flag} {size} on the {ranks_at_start} ranks that began the run makes {whole} "
                f"images a step, which cannot be dealt evenly to {self.count} ranks"
            )
        size = whole // self.count
        return Share(self.rank * size, (self.rank + 1) * size, whole)

    def seed_network(self, seed: int, step: int) -> None:
        """For models that draw themselves (dropout, Shake-Shake): others on every rank."""
        own = (self.rank,) if self.rank else ()  # rank 0 draws what a single process draws
        torch.manual_seed(streams.number(seed, Stream.MODEL, step, *own))

    def gather(self, value: Any) -> list[Any]:
        """What all ranks have, in their order: for small things and rare occasions."""
        if self.count == 1:
            return [value]
        found = [None] * self.count
        with in_touch():
            distributed.all_gather_object(found, value)
        return found

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """Of a few numbers, bit by bit the same on all ranks."""
        return values if self.count == 1 else self.sum(values) / self.count

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        return values if self.count == 1 else self._reduced(values, distributed.ReduceOp.SUM)

    def largest(self, value: int) -> int:
        if self.count == 1:
            return value
        number = torch.tensor([value], dtype=torch.int64)
        return int(self._reduced(number, distributed.ReduceOp.MAX))

    def _reduced(self, values: torch.Tensor, operation: Any) -> torch.Tensor:
        reduced = values.to(self.device, copy=True)
        with in_touch():
            distributed.all_reduce(reduced, operation)
        return reduced.to(values.device)

    def copy_from_first(self, tensors: Iterable[torch.Tensor]) -> None:
        """Overwrite `tensors` with those of rank 0."""
        if self.count > 1:
            with in_touch():
                for tensor in tensors:
                    distributed.broadcast(tensor.detach(), 0)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What goes wrong in here on some ranks goes wrong on all of them, in the same words."""
        problem = None
        try:
            yield
        except (ValueError, ArithmeticError, OSError) as error:
            if self.count == 1:
                raise
            problem = error
        told = self.gather(problem and sentence(problem))
        failed = [rank for rank, words in enumerate(told) if words]
        if failed:
            words = told[failed[0]]
            everywhere = len(failed) == self.count
            raise Refused(words if everywhere else f"rank {failed[0]}: {words}") from problem


ALONE = Ranks()


@contextmanager
def joined(device: torch.device, timeout: float) -> Iterator[Ranks]:
    """All the ranks that torchrun has started, within; without torchrun this process alone."""
    if not torchrun.launched():
        yield ALONE
        return
    if torchrun.rank() > 0:
        warnings.simplefilter("ignore")  # rank 0 warns for all
    patience = timedelta(seconds=timeout)
    with in_touch():
        store, rank, count = next(distributed.rendezvous("env://", timeout=patience))
        if torchrun.keeps_store():  # with the addresses of the dead
            store = distributed.PrefixStore(f"start {torchrun.restarts()}", store)
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=count,
            timeout=patience,
            device_id=device if device.type == "cuda" else None,
        )
    try:
        yield Ranks(rank, count, device)
    except Exception as error:
        error.of_one_rank = True  # unless it is known to be all ranks'
        if not isinstance(error, LostContact):
            distributed.destroy_process_group()
        raise
    distributed.destroy_process_group()


@contextmanager
def in_touch() -> Iterator[None]:
    """Say in plain words that another rank does not answer."""
    try:
        yield
    except RuntimeError as error:
        if not torchrun.launched() or not is_about_contact(error):
            raise
        raise LostContact(
            f"rank {torchrun.rank()} of {torchrun.count()} has lost contact with the others: one "
            "of them has ended, and may have said why, or has not answered within --timeout; "
            "go on with --resume"
        ) from error


def is_about_contact(error: RuntimeError) -> bool:
    """gloo raises plain RuntimeErrors; only their texts tell."""
    words = ("gloo", "nccl", "connection", "timed out", "timeout")
    text = str(error).lower()
    return isinstance(error, distributed.DistError) or any(word in text for word in words)
