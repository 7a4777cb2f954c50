"""Reading a user's data set in worker processes, with repeatable draws."""

# NumPy's legacy generator is global: it is the one that transforms draw from.
# ruff: noqa: NPY002

from __future__ import annotations

import multiprocessing
import pickle
import random
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader

Key = tuple[int, np.ndarray]  # an epoch, and the samples of a batch


class _Failed(NamedTuple):
    """A ValueError in a worker, for the main process to raise."""

    message: str
    trace: str


class _Batched:
    """What a worker of the DataLoader fetches."""

    def __init__(self, read: Callable[[int, int], Any], make: Callable[..., Any]) -> None:
        self.read, self.make = read, make

    def __getitem__(self, key: Key) -> Any:
        try:
            return self.make_batch(key)
        except ValueError as error:
            if type(error) is not ValueError:  # another class may not be built from its message
                raise
            return _Failed(str(error), traceback.format_exc())

    def make_batch(self, key: Key) -> Any:
        epoch, samples = key
        return self.make(epoch, samples, [self.read(int(sample), epoch) for sample in samples])

    def read_here(self, key: Key) -> Any:
        with kept_generators():
            return self.make_batch(key)


def forks() -> bool:
    """Whether worker processes start as copies of this one; others run the user's script again."""
    return multiprocessing.get_start_method() == "fork"


def in_workers(
    read: Callable[[int, int], Any], keys: Iterable[Key], make: Callable[..., Any], workers: int
) -> Iterator[Any]:
    """Yield make(epoch, samples, [read(sample, epoch), …]) for each (epoch, samples) of `keys`.

    The calls run in worker processes, some batches ahead, or with workers=0 in this process; the
    order is that of `keys`.
    """
    batches = _Batched(read, make)
    if workers == 0:
        return (batches.read_here(key) for key in keys)
    loader: DataLoader[Any] = DataLoader(
        batches,  # type: ignore[arg-type]
        batch_size=None,
        sampler=keys,
        num_workers=workers,
        collate_fn=_untouched,
        generator=torch.Generator(),  # not this process's own: its state must not change
    )
    try:
        return _raised(iter(loader))
    except (AttributeError, TypeError, pickle.PicklingError) as error:  # unless they are forked
        raise ValueError(
            f"a worker process cannot be given the data set ({error}): workers=0 reads it in this "
            "process"
        ) from None


def _raised(batches: Iterator[Any]) -> Iterator[Any]:
    """Raise the errors of workers as they were; a DataLoader adds a traceback to the message."""
    for batch in batches:
        if isinstance(batch, _Failed):
            raise ValueError(batch.message) from RuntimeError(batch.trace)
        yield batch


def _untouched(batch: Any) -> Any:
    return batch


def seed_generators(number: int) -> None:
    """Seed the global generators, which data sets draw from."""
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)
    torch.random.default_generator.manual_seed(number)


@contextmanager
def kept_generators() -> Iterator[None]:
    """Restore the global generators of this process afterwards."""
    states = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.random.set_rng_state(states[2])
