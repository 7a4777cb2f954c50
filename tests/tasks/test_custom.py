"""A user's own task: targets of each version, and maps that move with the pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from own_data import TRAIN, VALIDATION, Digits, network
from torch.nn import functional as F

from ddas_gpu import SearchSpace, SearchTask, search_policy
from ddas_gpu.tasks.custom import Trial, caption

pytestmark = pytest.mark.usefixtures("one_thread")

GEOMETRIC = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "FlipLR", "FlipUD")
MOVES = SearchSpace.of((*GEOMETRIC, "Rotate90"), levels=(6, 14), depth=2)
TONES = SearchSpace.of(("Invert", "Solarize", "Color", "Blur", "Cutout"), levels=(6,), depth=2)


def trial(space: SearchSpace, seed: int) -> tuple[Trial, torch.Tensor]:
    generator = np.random.default_rng(seed)
    policies = generator.integers(0, len(space), (3, space.depth))
    maps = torch.from_numpy(generator.integers(0, 256, (4, 12, 12), dtype=np.uint8))
    return Trial(policies, space, seed, np.arange(4)), maps


@settings(max_examples=25)
@given(seed=st.integers(0, 2**20))
def test_maps_move_as_the_pixels_do(seed):
    """Under ops that move pixels and nothing else, a map moves as an image of it."""
    tried, maps = trial(MOVES, seed)
    images = maps[..., None].expand(-1, -1, -1, 3).contiguous()
    assert torch.equal(tried.maps(maps), tried.images(images)[..., 0])


@settings(max_examples=10)
@given(seed=st.integers(0, 2**20))
def test_maps_stay_under_ops_on_colours(seed):
    tried, maps = trial(TONES, seed)
    assert torch.equal(tried.maps(maps), maps.expand(4, -1, -1, -1))


def test_other_ops_in_a_policy_do_not_change_how_maps_move():
    """The signs are drawn by place in the policy, so that they are those of the pixels."""
    space = SearchSpace.of(("Rotate", "Invert"), levels=(10,), depth=2)
    maps = torch.arange(100, dtype=torch.uint8).reshape(1, 10, 10).repeat(6, 1, 1)
    samples = np.arange(6)
    tried = Trial(np.array([[1, 0], [0, 1]]), space, 3, samples)
    images = maps[..., None].expand(-1, -1, -1, 3).contiguous()
    pixels = tried.images(images)[..., 0]
    inside = tried.maps(torch.ones_like(maps)).bool()[1:]
    moved = tried.maps(maps)[1:]
    assert inside.float().mean() > 0.5
    assert torch.equal(moved[inside], 255 - pixels[1:][inside])


def test_pixels_from_outside_get_their_own_value():
    space = SearchSpace.of(("TranslateX",), levels=(10,), depth=1)
    tried = Trial(np.array([[0]]), space, 0, np.arange(3))
    moved = tried.maps(torch.ones(3, 32, 32, dtype=torch.uint8), outside=7)
    assert set(moved[1].unique().tolist()) == {1, 7} and set(moved[0].unique().tolist()) == {1}


class Soft(SearchTask):
    """Smooths the labels of augmented versions, which a loss alone cannot do."""

    seen: list

    def loss(self, outputs, targets):
        return F.cross_entropy(outputs, targets)

    def versions(self, images, targets, trial):
        sharp = F.one_hot(targets, 10).float()
        versions = [sharp] + [0.9 * sharp + 0.01] * len(trial.policies)
        return trial.images(images), versions


TINY = {"space": "digits", "epochs": 1, "batch_size": 8, "val_batch_size": 20, "quiet": True}


def test_each_version_has_its_own_targets():
    sets = Digits(TRAIN), Digits(VALIDATION)
    soft = search_policy(network(), *sets, task=Soft(), **TINY).policy
    hard = search_policy(network(), *sets, **TINY).policy
    assert soft.settings["loss"] == "Soft"
    assert not np.array_equal(soft.p_o, hard.p_o)


class Spatial(Soft):
    spatial = True


@pytest.mark.parametrize("moved", [{"flip": True}, {"padding": 2}, {"crop": "resized"}])
def test_targets_with_places_refuse_a_transform_that_does_not_know_them(moved):
    with pytest.raises(ValueError, match="targets of Spatial have places"):
        search_policy(network(), Digits(TRAIN), Digits(VALIDATION), task=Spatial(), **TINY, **moved)


def test_a_loss_or_a_task_but_not_both():
    with pytest.raises(TypeError, match="a loss or a task"):
        search_policy(network(), Digits(TRAIN), Digits(TRAIN), F.mse_loss, task=Soft())


def test_captions():
    assert caption(1, ("cat", "dog")) == "dog"
    assert caption(np.int64(7), ()) == "7" and caption(torch.tensor(0.5), ()) == "0.5"
    assert caption({"boxes": [1]}, ()) == caption(np.zeros(3), ()) == ""
