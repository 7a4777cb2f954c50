"""Reading in workers or in this process: the same batches, and errors as they were."""

from __future__ import annotations

import multiprocessing
import random

import numpy as np
import pytest
import torch

from ddas_gpu.data.workers import in_workers, seed_generators

KEYS = [(epoch, np.arange(3) + start) for epoch in (0, 1) for start in (0, 3)]


def read(sample: int, epoch: int) -> tuple[int, float, float]:
    seed_generators(10 * epoch + sample)
    return sample, random.random(), float(torch.rand(()))


def listed(epoch: int, samples: np.ndarray, read: list) -> list:
    return [epoch, samples.tolist(), read]


def state() -> tuple:
    return random.getstate(), torch.get_rng_state().tolist()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_batches_of_workers_are_those_of_this_process(workers):
    before = state()
    here, there = (list(in_workers(read, KEYS, listed, count)) for count in (0, workers))
    assert here == there and [batch[:2] for batch in here] == [[e, s.tolist()] for e, s in KEYS]
    assert state() == before


class Own(ValueError):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_has_its_own_sentence(workers):
    def wrong(sample: int, epoch: int) -> int:
        raise ValueError(f"sample {sample} is wrong")

    with pytest.raises(ValueError, match="^sample 0 is wrong$") as raised:
        list(in_workers(wrong, KEYS, listed, workers))
    assert workers == 0 or ", in wrong" in str(raised.value.__cause__)


@pytest.mark.parametrize("error", [Own("a", "b"), KeyError("a file")])
def test_other_errors_come_out_of_a_worker_too(error):
    def wrong(sample: int, epoch: int) -> int:
        raise error

    with pytest.raises((ValueError, RuntimeError, KeyError), match="ab|a file"):
        list(in_workers(wrong, KEYS, listed, 1))


@pytest.fixture
def spawning():
    """Processes start anew, as by default on macOS."""
    usual = multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(usual, force=True)


@pytest.mark.filterwarnings("ignore:Got pickle error")
def test_what_a_new_process_cannot_be_given(spawning):
    with pytest.raises(ValueError, match="cannot be given the data set .*: workers=0 reads it in"):
        in_workers(lambda sample, epoch: sample, KEYS, listed, 1)
    assert len(list(in_workers(lambda sample, epoch: sample, KEYS, listed, 0))) == len(KEYS)
