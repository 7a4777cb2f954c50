"""The ranks of a run and their collectives."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from ddas_gpu import streams
from ddas_gpu.distributed import torchrun
from ddas_gpu.errors import LostContact, Refused, sentence
from ddas_gpu.streams import Stream


class Ranks:
    """This process among `count`; with world size 1, collectives are no-ops.

    All ranks must call every method but `batch_size` and `seed_network`, in the same order.
    """

    def __init__(self, rank: int = 0, count: int = 1, device: torch.device | str = "cpu") -> None:
        self.rank, self.count = rank, count
        self.device = torch.device(device)  # of the tensors that NCCL or gloo reduces

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which alone writes files and prints."""
        return self.rank == 0

    def batch_size(self, flag: str, size: int, ranks_at_start: int) -> int:
        """Return the images per step of this rank, given `size` per rank at the start of the run.

        The size of the whole batch does not change if the run resumes on another number of ranks.
        """
        whole = size * ranks_at_start
        if whole % self.count:
            raise ValueError(
                f"{flag} {size} on the {ranks_at_start} ranks that began the run makes {whole} "
                f"images per step, which cannot be divided evenly among {self.count} ranks"
            )
        return whole // self.count

    def seed_network(self, seed: int, step: int) -> None:
        """Seed the draws inside models (dropout, Shake-Shake), differently on every rank."""
        own = (self.rank,) if self.rank else ()  # rank 0 draws as a single process does
        number = streams.number(seed, Stream.MODEL, step, *own)
        # torch.manual_seed does the same, but where CUDA is not in use it also formats the stack,
        # which in short steps takes a tenth of the time.
        torch.random.default_generator.manual_seed(number)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(number)

    def gather(self, value: Any) -> list[Any]:
        """All-gather a picklable object, by rank. Slow: for small objects, not for every step."""
        if self.count == 1:
            return [value]
        found: list[Any] = [None] * self.count
        with in_touch():
            distributed.all_gather_object(found, value)
        return found

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """All-reduce mean, bit-identical on every rank."""
        return values if self.count == 1 else self.sum(values) / self.count

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """All-reduce sum, bit-identical on every rank."""
        return values if self.count == 1 else self._reduced(values, distributed.ReduceOp.SUM)

    def largest(self, value: int) -> int:
        """All-reduce maximum."""
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
        """Broadcast `tensors` from rank 0, in place."""
        if self.count > 1:
            with in_touch():
                for tensor in tensors:
                    distributed.broadcast(tensor.detach(), 0)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Re-raise any rank's error on every rank."""
        problem = None
        try:
            yield
        except (ValueError, ArithmeticError, OSError) as error:
            if self.count == 1:
                raise
            problem = error
        messages = self.gather(problem and sentence(problem))
        failed = [rank for rank, words in enumerate(messages) if words]
        if failed:
            words = messages[failed[0]]
            everywhere = len(failed) == self.count
            raise Refused(words if everywhere else f"rank {failed[0]}: {words}") from problem


ALONE = Ranks()


@contextmanager
def joined(device: torch.device, timeout: float) -> Iterator[Ranks]:
    """Join the process group that torchrun has started; without torchrun, yield `ALONE`."""
    if not torchrun.launched():
        yield ALONE
        return
    if torchrun.rank() > 0:
        warnings.simplefilter("ignore")  # rank 0 prints them
    patience = timedelta(seconds=timeout)
    with in_touch():
        store, rank, count = next(distributed.rendezvous("env://", timeout=patience))
        if torchrun.keeps_store():  # which still holds the addresses of failed ranks
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
        vars(error)["of_one_rank"] = True  # `errors.on_all_ranks` takes precedence
        if not isinstance(error, LostContact):
            distributed.destroy_process_group()
        raise
    distributed.destroy_process_group()


@contextmanager
def in_touch() -> Iterator[None]:
    """Turn errors of collectives into `LostContact`."""
    try:
        yield
    except RuntimeError as error:
        if not torchrun.launched() or not is_about_contact(error):
            raise
        raise LostContact(
            f"rank {torchrun.rank()} of {torchrun.count()} has lost contact with the others: one "
            "of them has ended, see its output, or has not answered within --timeout; "
            "continue with --resume"
        ) from error


def is_about_contact(error: RuntimeError) -> bool:
    """Return whether a collective failed. gloo raises plain RuntimeErrors: search the message."""
    words = ("gloo", "nccl", "connection", "timed out", "timeout")
    text = str(error).lower()
    return isinstance(error, distributed.DistError) or any(word in text for word in words)


# --- all-reduce of a gradient in buckets, while the backward pass goes on -------------------------

# Small enough for the first all-reduce to start early, large enough to amortise the latency of
# one: the default of DistributedDataParallel.
BUCKET_BYTES = 25 << 20


class MeanGradient:
    """Collects a gradient parameter by parameter, and returns its mean over the ranks.

    parameters   {name: tensor like the gradient}, in the order in which they are expected.

    A bucket is all-reduced asynchronously once it is complete and the buckets before it have been
    started, so that all ranks issue the same collectives in the same order. Only `result` waits.
    """

    def __init__(self, ranks: Ranks, parameters: Mapping[str, torch.Tensor]) -> None:
        self._ranks, self._shapes = ranks, {n: p.shape for n, p in parameters.items()}
        self._missing = buckets_of(parameters)
        self._parts: dict[str, torch.Tensor] = {}
        self._sent: list[tuple[list[str], torch.Tensor, Any]] = []

    def add(self, name: str, gradient: torch.Tensor) -> None:
        self._parts[name] = gradient.detach()
        if self._ranks.count == 1:
            return
        while self._missing and all(name in self._parts for name in self._missing[0]):
            names = self._missing.pop(0)
            flat = torch.cat([self._parts.pop(name).reshape(-1) for name in names])
            with in_touch():
                work = distributed.all_reduce(flat, async_op=True)
            self._sent.append((names, flat, work))

    def result(self) -> dict[str, torch.Tensor]:
        """Return {name: mean}; every parameter must have been added."""
        if self._ranks.count == 1:
            return self._parts
        means = {}
        for names, flat, work in self._sent:
            with in_touch():
                work.wait()
            flat /= self._ranks.count
            sizes = [self._shapes[name].numel() for name in names]
            for name, part in zip(names, flat.split(sizes), strict=True):
                means[name] = part.view(self._shapes[name])
        return means


def buckets_of(parameters: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Group names in their order; a new bucket starts when one is full or the dtype changes."""
    buckets: list[list[str]] = []
    size, kind = 0, None
    for name, parameter in parameters.items():
        if not buckets or size >= BUCKET_BYTES or parameter.dtype != kind:
            buckets.append([])
            size, kind = 0, parameter.dtype
        buckets[-1].append(name)
        size += parameter.numel() * parameter.element_size()
    return buckets
