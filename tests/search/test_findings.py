"""It must work: what a search finds makes sense to a person."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest
from PIL import Image

from ddas_gpu.ops import OPS
from ddas_gpu.search import algorithm as searching
from ddas_gpu.search.algorithm import Search, open_search
from ddas_gpu.search.job import SearchJob
from ddas_gpu.search.settings import SearchSettings, preset
from ddas_gpu.search.verdict import HELPS, HURTS

pytestmark = pytest.mark.usefixtures("one_thread")


def searched(settings: SearchSettings) -> Search:
    """A finished search."""
    search = open_search(settings)
    while not search.finished:
        search.step()
    return search


def verdict_on(op: str, search: Search) -> str:
    return SearchJob(search).judged["ops"][op]["verdict"]


def found(search: Search) -> dict[str, np.ndarray]:
    """{op: the final probabilities of its candidates, in multiples of uniform}."""
    relative = search.parameters.op_probabilities * len(search.space)
    ops = [candidate.op for candidate in search.space]
    return {op: relative[[name == op for name in ops]] for op in ops}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_digits_may_lean_and_shift_but_not_stand_on_their_heads(seed):
    probabilities = found(searched(preset("digits").replace(seed=seed)))
    assert probabilities["FlipUD"].max() < 1
    assert probabilities["Invert"].max() < 1
    geometric = [probabilities[op].mean() for op in ("Rotate", "ShearX", "TranslateX")]
    assert np.mean(geometric) > 1


# Fewer, larger steps of α than the preset's, for the time's sake.
QUICK_CHECK = preset("digits", "rotate90").replace(epochs=6, lr_ops=0.06)


def rotate90_wins(search: Search) -> bool:
    """The paper's sanity check: Rotate90 ends first, at least twice the next."""
    probabilities = found(search)
    winner = probabilities.pop("Rotate90").item()
    return winner >= 2 * max(relative.max() for relative in probabilities.values())


def test_turned_validation_images_make_rotate90_win():
    search = searched(QUICK_CHECK)
    assert rotate90_wins(search)
    assert verdict_on("Rotate90", search) == HELPS


def test_the_check_fails_with_the_sign_of_the_rewards_flipped(monkeypatch):
    """A check that cannot fail would prove nothing."""
    monkeypatch.setattr(searching, "rewards", lambda dots: dots[1:] - dots[0])
    search = searched(QUICK_CHECK)
    assert not rotate90_wins(search)
    assert verdict_on("Rotate90", search) == HURTS


@pytest.fixture(scope="module")
def cifar10(shared_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cifar10")
    with tarfile.open(shared_data / "cifar10.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    return folder


SMALLER = {"model": "wrn-10-1", "val_batch_size": 64, "epochs": 12}  # for a CPU


@pytest.mark.slow
def test_turned_cifar10_makes_rotate90_win(cifar10):
    """On photographs."""
    search = searched(preset("cifar10", "rotate90").replace(root=cifar10, **SMALLER))
    assert rotate90_wins(search)
    assert verdict_on("Rotate90", search) == HELPS


@pytest.mark.slow
@pytest.mark.parametrize("op", ["Invert", "FlipUD"])
def test_the_op_that_leads_to_the_target_domain_comes_first(op, cifar10, tmp_path):
    """Validation images of another folder, that differ from the training images by one op."""
    for path in cifar10.glob("test/*/*.jpg"):
        target = tmp_path / path.parent.name / f"{path.stem}.png"
        target.parent.mkdir(exist_ok=True)
        with Image.open(path) as image:
            OPS[op].pillow(image.convert("RGB")).save(target)
    settings = preset("cifar10", "rotate90").replace(
        sanity_check=None, root=cifar10, val_root=tmp_path, **SMALLER
    )
    search = searched(settings)
    probabilities = {name: relative.max() for name, relative in found(search).items()}
    assert verdict_on(op, search) == HELPS
    assert max(probabilities, key=probabilities.get) == op, probabilities
