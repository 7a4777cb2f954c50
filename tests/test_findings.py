"""It must work: what a search finds makes sense to a person."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest
import torch

from ddas_gpu import searching
from ddas_gpu.data import proxy_sets
from ddas_gpu.searching import Search
from ddas_gpu.settings import SearchSettings, preset


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small gain little from more, and lose much where cores are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def found(settings: SearchSettings) -> dict[str, np.ndarray]:
    """{op: the final probabilities of its candidates, in multiples of uniform}."""
    search = Search(
        settings, settings.search_space(), *proxy_sets(settings.data, settings.run.seed)
    )
    while not search.finished:
        search.step()
    relative = search.parameters.op_probabilities * len(search.space)
    ops = [candidate.op for candidate in search.space]
    return {op: relative[[name == op for name in ops]] for op in ops}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 4))]
)
def test_digits_may_lean_and_shift_but_not_stand_on_their_heads(seed):
    probabilities = found(preset("digits").replace(seed=seed))
    assert probabilities["FlipUD"].max() < 1
    assert probabilities["Invert"].max() < 1
    geometric = [probabilities[op].mean() for op in ("Rotate", "ShearX", "TranslateX")]
    assert np.mean(geometric) > 1


# Fewer, larger steps of α than the preset's, for the time's sake.
QUICK_CHECK = preset("digits", "rotate90").replace(epochs=30, lr_ops=0.02)


def rotate90_wins(settings: SearchSettings) -> bool:
    """The paper's sanity check: Rotate90 ends first, at least twice the next."""
    probabilities = found(settings)
    winner = probabilities.pop("Rotate90").item()
    return winner >= 2 * max(relative.max() for relative in probabilities.values())


def test_turned_validation_images_make_rotate90_win():
    assert rotate90_wins(QUICK_CHECK)


def test_the_check_fails_with_the_sign_of_the_rewards_flipped(monkeypatch):
    """A check that cannot fail would prove nothing."""
    monkeypatch.setattr(searching, "rewards", lambda dots: dots[1:] - dots[0])
    assert not rotate90_wins(QUICK_CHECK)


@pytest.mark.slow
def test_turned_cifar10_makes_rotate90_win(shared_data, tmp_path):
    """On photographs, with a network small enough for a CPU."""
    with tarfile.open(shared_data / "cifar10.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    smaller = {"model": "wrn-10-1", "val_batch": 64, "epochs": 12, "root": tmp_path}
    assert rotate90_wins(preset("cifar10", "rotate90").replace(**smaller))
