"""A user's own task: targets of each version, and maps that move with the pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from own_data import TRAIN, VALIDATION, Digits, network
from torch.nn import functional as F

from ddas_gpu import OnlineSearch, SearchSpace, SearchTask, ops, search_policy
from ddas_gpu.tasks.custom import PerImage, Trial, caption

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


MOVED = [{"flip": True}, {"padding": 2}, {"crop": "resized"}]
MOVED += [{"image_size": 8}, {"sanity_check": "rotate90"}]


@pytest.mark.parametrize("moved", MOVED)
def test_targets_with_places_refuse_a_transform_that_does_not_know_them(moved):
    with pytest.raises(ValueError, match="targets of Spatial have places"):
        search_policy(network(), Digits(TRAIN), Digits(VALIDATION), task=Spatial(), **TINY, **moved)


class Larger(Digits):
    """Digits, one of which has twice the pixels; it is not one of those that are looked at."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return (image.repeat(2, 0).repeat(2, 1) if index == 1 else image), label


@pytest.mark.parametrize("decode", ["once", "each"])
@pytest.mark.parametrize("kinds", [(Larger, Digits), (Digits, Larger)])
def test_targets_with_places_refuse_an_image_of_another_size(kinds, decode):
    sets = [kind(part) for kind, part in zip(kinds, (TRAIN, VALIDATION), strict=True)]
    sentence = r"^image 1 of Larger has \(32, 32\) pixels, others \(16, 16\): targets with places"
    with pytest.raises(ValueError, match=sentence):
        search_policy(network(), *sets, task=Spatial(), **TINY, decode=decode, warmup_epochs=0)


def test_images_with_targets_in_places_keep_their_size():
    def wide(image, label):
        return np.concatenate([image, image[:, :4]], 1), label

    sets = Digits(TRAIN, wide), Digits(VALIDATION, wide)
    settings = search_policy(network(), *sets, task=Spatial(), **TINY).policy.settings
    assert (settings["image_size"], settings["crop"]) == (16, "pad")


@pytest.mark.parametrize(
    "maps", [torch.zeros(2, 4, 4), torch.zeros(2, 4, 4).long(), torch.zeros(2, 4, 4, 3).byte()]
)
def test_other_maps_are_refused(maps):
    tried = Trial(np.array([[0, 0]]), MOVES, 0, np.arange(2))
    with pytest.raises(
        ValueError, match=r"maps must be uint8 \(B, H, W\), not torch\..* \(2, 4, 4"
    ):
        tried.maps(maps)


BOXES = SearchSpace.of(("TranslateX_BBox", "Rotate_BBox", "Invert"), levels=(10,), depth=2)


def padded_boxes(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images with 0, 1 or 2 boxes of two places each."""
    generator = np.random.default_rng(0)
    images = torch.from_numpy(generator.integers(0, 256, (count, 16, 16, 3), dtype=np.uint8))
    corners = torch.from_numpy(generator.uniform(0, 8, (count, 2, 2)).astype(np.float32))
    boxes = torch.cat([corners, corners + 7], dim=2)
    labels = torch.from_numpy(generator.integers(0, 5, (count, 2)))
    labels[::3], labels[1::3, 1] = -1, -1
    return images, boxes, labels


@pytest.mark.parametrize("kind", [Trial, PerImage])
def test_padded_boxes_move_as_those_of_augment_boxes(kind):
    images, boxes, labels = padded_boxes(6)
    policies, samples = np.array([[0, 1], [2, -1], [1, 0]] * 2), np.arange(10, 16)
    tried = kind(policies, BOXES, 7, samples).boxes(images, boxes, labels)
    for one, clean in zip(tried, (images, boxes, labels), strict=True):
        assert torch.equal(one[0], clean)
    there = labels >= 0
    own = [[part[i][there[i]].numpy() for i in range(6)] for part in (boxes, labels)]
    each = policies if kind is Trial else [policies]
    for policy, *moved in zip(each, *(part[1:] for part in tried), strict=True):
        wanted = ops.augment_boxes(list(images), *own, policy, BOXES, 7, samples=samples)
        for pixels, rows, names, *expected in zip(*moved, *wanted, strict=True):
            count = len(expected[1])
            assert torch.equal(pixels, expected[0])
            np.testing.assert_array_equal(rows[:count], expected[1].astype("float32"))
            assert names.tolist() == [*expected[2], *[-1] * (2 - count)]
    assert not torch.equal(tried[1][1], boxes)


def test_a_box_that_leaves_the_image_has_no_label():
    space = SearchSpace.of(("TranslateX_BBox",), levels=(14,), depth=1)
    images = torch.zeros(40, 24, 24, 3, dtype=torch.uint8)
    boxes, labels = torch.tensor([0.0, 0, 3, 3]).expand(40, 1, 4), torch.ones(40, 1).long()
    tried = Trial(np.array([[0]]), space, 0, np.arange(40))
    _, moved, kept = tried.boxes(images, boxes, labels)
    gone = kept[1] < 0
    assert 0 < gone.sum() < 40 and not moved[1][gone].any()


def test_ops_that_would_leave_boxes_behind_are_refused():
    images, boxes, labels = padded_boxes(2)
    with pytest.raises(ValueError, match="Rotate moves pixels away from their boxes"):
        Trial(np.array([[0, 0]]), MOVES, 0, np.arange(2)).boxes(images, boxes, labels)


class Located(Digits):
    """A digit and the box around it, in two places for boxes."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        y, x = image[..., 0].nonzero()
        box = [x.min(), y.min(), x.max() + 1, y.max() + 1]
        return image, {"boxes": np.array([box, [0] * 4], "float32"), "labels": [label, -1]}


class Detection(SearchTask):
    spatial = True

    def loss(self, outputs, targets):
        there = torch.stack(targets["labels"], 1) >= 0
        return F.smooth_l1_loss(
            outputs[:, None, :4].expand(-1, 2, 4)[there], targets["boxes"][there]
        )

    def versions(self, images, targets, trial):
        labels = torch.stack(targets["labels"], 1)
        pixels, boxes, labels = trial.boxes(images, targets["boxes"], labels)
        pairs = zip(boxes, labels, strict=True)
        return pixels, [{"boxes": b, "labels": list(each.T)} for b, each in pairs]


def test_a_detector_of_ones_own(tmp_path):
    """With the ops for boxes, and a report, though only the task can read the boxes."""
    sets = Located(TRAIN), Located(VALIDATION)
    settings = {**TINY, "space": "coco", "out": tmp_path / "run"}
    result = search_policy(network(), *sets, task=Detection(), **settings)
    assert result.report.stat().st_size and np.ptp(result.policy.p_o[-1]) > 0
    held_out = OnlineSearch(network(), Detection(), sets[1], "coco", apply_probability=0.99)
    images, boxes, labels = padded_boxes(8)
    given = {"boxes": boxes, "labels": list(labels.T)}
    changed, moved = held_out.augment(images, given)
    assert changed.shape == images.shape and moved["boxes"].shape == boxes.shape
    assert not torch.equal(changed, images)


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (lambda images, targets, trial: trial.images(images), "images, targets of each"),
        (lambda images, targets, trial: (images, [targets]), r"images uint8 \(4, 8, 16"),
        (lambda images, targets, trial: (trial.images(images), targets), "4 versions, not Tensor"),
        (lambda images, targets, trial: (trial.images(images), [targets]), "not 1 of them"),
    ],
)
def test_versions_must_be_complete(returned, sentence):
    task, sets = Soft(), (Digits(TRAIN), Digits(VALIDATION))
    task.versions = returned
    with pytest.raises(ValueError, match=f"Soft.versions .*{sentence}"):
        search_policy(network(), *sets, task=task, policies=3, warmup_epochs=0, **TINY)


def test_a_task_in_the_wrong_place():
    sets = network(), Digits(TRAIN), Digits(TRAIN)
    with pytest.raises(TypeError, match="Soft is a SearchTask: give it as task="):
        search_policy(*sets, Soft())
    with pytest.raises(TypeError, match=r"task is an object, not a class: Soft\(\)"):
        search_policy(*sets, task=Soft)
    with pytest.raises(NotImplementedError, match="SearchTask needs a method loss"):
        search_policy(*sets, task=SearchTask(), **TINY)


def test_a_loss_or_a_task_but_not_both():
    with pytest.raises(TypeError, match="a loss or a task"):
        search_policy(network(), Digits(TRAIN), Digits(TRAIN), F.mse_loss, task=Soft())


def test_captions():
    assert caption(1, ("cat", "dog")) == "dog"
    assert caption(np.int64(7), ()) == "7" and caption(torch.tensor(0.5), ()) == "0.5"
    assert caption({"boxes": [1]}, ()) == caption(np.zeros(3), ()) == ""
