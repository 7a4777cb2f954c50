"""PolicyTransform: the bytes of `augment`, for every kind of image, in every worker."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import ddas_gpu
from ddas_gpu import (
    BatchPolicy,
    BoxPolicyTransform,
    PolicySchedule,
    PolicyTransform,
    SearchResult,
    SearchSpace,
    augment,
    streams,
)

SPACE = SearchSpace.preset("cifar")
SCHEDULE = PolicySchedule(
    SPACE, np.array([0.5, 1.0]), np.random.default_rng(1).dirichlet(np.ones(len(SPACE)), 2)
)
# Inverts in the second epoch only.
INVERT = PolicySchedule(
    SearchSpace.of(["Identity", "Invert"], depth=1), [0.0, 1.0, 0.0], [[0.0, 1.0]] * 3
)
# Inverts half of the images.
INVERT_HALF = PolicySchedule(INVERT.space, [0.5], [[0.0, 1.0]])
IMAGES = np.random.default_rng(2).integers(0, 256, (40, 14, 11, 3), np.uint8)


@pytest.mark.parametrize("epoch", [0, 3])
def test_it_is_what_the_pipelines_do_to_the_sample_of_that_index(epoch):
    transform = PolicyTransform(SCHEDULE, epochs=4, seed=5)
    transform.set_epoch(epoch)
    samples = np.arange(40)
    policies = SCHEDULE.draw(epoch, 4, 5, samples)
    expected = augment(IMAGES, policies, SPACE, streams.sign_key(5, epoch), samples=samples)
    found = np.stack([transform(image, index=index) for index, image in enumerate(IMAGES)])
    np.testing.assert_array_equal(found, expected)
    assert (found != IMAGES).any()


def test_all_kinds_of_images_come_back_as_they_came():
    transform = PolicyTransform(SCHEDULE, epochs=2)
    transform.set_epoch(1)
    for image in IMAGES[:10]:
        array = transform(image)
        picture = transform(Image.fromarray(image))
        tensor = transform(torch.from_numpy(image).permute(2, 0, 1))
        assert array.dtype == np.uint8 and array.shape == image.shape
        assert isinstance(picture, Image.Image) and picture.mode == "RGB"
        assert tensor.dtype == torch.uint8 and tensor.shape == (3, 14, 11)
        np.testing.assert_array_equal(np.asarray(picture), array)
        np.testing.assert_array_equal(tensor.permute(1, 2, 0).numpy(), array)


def test_the_input_is_left_alone():
    transform = PolicyTransform(SCHEDULE, epochs=1)
    image = IMAGES[0].copy()
    for index in range(20):
        transform(image, index=index)
    np.testing.assert_array_equal(image, IMAGES[0])


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_other_modes_become_rgb(mode):
    picture = Image.fromarray(IMAGES[0]).convert(mode)
    transform = PolicyTransform(INVERT, epochs=3)
    np.testing.assert_array_equal(
        np.asarray(transform(picture)), np.asarray(picture.convert("RGB"))
    )


def test_without_an_index_images_are_told_apart_by_their_pixels():
    transform = PolicyTransform(SCHEDULE, epochs=2, seed=1)
    once = [transform(image) for image in IMAGES]
    again = [transform(image) for image in IMAGES[::-1]][::-1]
    assert all((a == b).all() for a, b in zip(once, again, strict=True))
    share = np.mean([(a != b).any() for a, b in zip(once, IMAGES, strict=True)])
    assert 0.2 < share < 0.8  # of p_tp = 0.5
    other = [PolicyTransform(SCHEDULE, epochs=2, seed=2)(image) for image in IMAGES]
    assert any((a != b).any() for a, b in zip(once, other, strict=True))


class Pictures(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, index):
        picture = self.transform(Image.fromarray(IMAGES[index]))
        return torch.from_numpy(np.array(picture))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_any_number_of_workers_agrees(workers):
    transform = PolicyTransform(SCHEDULE, epochs=2)
    batches = DataLoader(Pictures(transform), batch_size=8, num_workers=workers)
    found = torch.cat(list(batches)).numpy()
    np.testing.assert_array_equal(found, np.stack([transform(image) for image in IMAGES]))


@pytest.mark.parametrize(
    ("method", "persistent"), [("fork", False), ("fork", True), ("spawn", True)]
)
def test_set_epoch_reaches_the_workers(method, persistent):
    transform = PolicyTransform(INVERT, epochs=3)
    batches = DataLoader(
        Pictures(transform),
        batch_size=8,
        num_workers=1,
        persistent_workers=persistent,
        multiprocessing_context=method,
    )
    for epoch in range(3):
        transform.set_epoch(epoch)
        found = torch.cat(list(batches)).numpy()
        np.testing.assert_array_equal(found, 255 - IMAGES if epoch == 1 else IMAGES)


def test_it_can_be_pickled_and_copied():
    transform = PolicyTransform(SCHEDULE, epochs=2, seed=3)
    transform.set_epoch(1)
    pickled = pickle.loads(pickle.dumps(transform))
    assert pickled.epoch == 1
    for image in IMAGES[:10]:
        np.testing.assert_array_equal(pickled(image), transform(image))


def test_a_schedule_may_be_a_file(tmp_path):
    SCHEDULE.save(tmp_path / "policy.json")
    from_file = ddas_gpu.PolicyTransform(tmp_path / "policy.json", epochs=2)
    np.testing.assert_array_equal(from_file(IMAGES[0]), PolicyTransform(SCHEDULE, 2)(IMAGES[0]))


@pytest.mark.parametrize(
    ("image", "problem", "message"),
    [
        ("cat.jpg", TypeError, "an image is a PIL image, .* not str"),
        (np.zeros((4, 4, 3), np.float32), ValueError, "uint8 .*not float32 .*the normalisation"),
        (np.zeros((4, 4), np.uint8), ValueError, r"\(4, 4\).* repeat that of a grey image"),
        (
            np.zeros((3, 4, 4), np.uint8),
            ValueError,
            r"array .*shape \(H, W, 3\), not .*\(3, 4, 4\)",
        ),
        ((np.arange(3), np.zeros((4, 4, 3))), ValueError, r"float64 of \(4, 4, 3\)"),
        (torch.zeros(3, 4, 4), ValueError, "before the normalisation"),
        (torch.zeros(4, 4, 3, dtype=torch.uint8), ValueError, r"shape \(3, H, W\)"),
    ],
)
def test_what_is_not_an_image(image, problem, message):
    with pytest.raises(problem, match=message):
        PolicyTransform(SCHEDULE, 1)(image)


def test_epochs_beyond_the_last_keep_its_probabilities():
    transform = PolicyTransform(INVERT, epochs=3)
    inverting = PolicyTransform(INVERT, epochs=2)  # with the second entry at the end
    for epoch in (3, 10):
        transform.set_epoch(epoch)
        np.testing.assert_array_equal(transform(IMAGES[0]), IMAGES[0])
    inverting.set_epoch(1)
    at_the_end = inverting(IMAGES[0])
    inverting.set_epoch(7)
    np.testing.assert_array_equal(inverting(IMAGES[0]), at_the_end)


@pytest.mark.parametrize("number", [-1, 1.5, 1.0, "1", None, True])
def test_numbers_that_are_none(number):
    """For epochs and seeds, in every transform."""
    for kind in (PolicyTransform, BoxPolicyTransform, BatchPolicy):
        with pytest.raises(ValueError, match=f"epoch is a whole number, 0 or more, not {number!r}"):
            kind(SCHEDULE, epochs=2).set_epoch(number)
        with pytest.raises(
            ValueError, match=f"epochs is a whole number, 1 or more, not {number!r}"
        ):
            kind(SCHEDULE, epochs=number)
        with pytest.raises(ValueError, match=f"seed is a whole number, 0 or more, not {number!r}"):
            kind(SCHEDULE, epochs=2, seed=number)


def test_numbers_of_numpy():
    transform = PolicyTransform(SCHEDULE, np.int64(2), np.uint8(5))
    transform.set_epoch(np.int32(1))
    same = PolicyTransform(SCHEDULE, 2, 5)
    same.set_epoch(1)
    np.testing.assert_array_equal(transform(IMAGES[3]), same(IMAGES[3]))


def test_a_schedule_may_be_the_result_of_a_search():
    result = SearchResult(SCHEDULE, None, "")
    np.testing.assert_array_equal(
        PolicyTransform(result, 2)(IMAGES[0]), PolicyTransform(SCHEDULE, 2)(IMAGES[0])
    )


@pytest.mark.parametrize(
    ("schedule", "problem", "message"),
    [
        (None, TypeError, "what search_policy returned, or the path .*, not NoneType"),
        ({"p_tp": 1}, TypeError, "schedule is a PolicySchedule, .*, not dict"),
        ("nowhere.json", FileNotFoundError, "there is no policy.json .* nowhere.json"),
    ],
)
def test_what_is_no_schedule(schedule, problem, message):
    for kind in (PolicyTransform, BoxPolicyTransform, BatchPolicy):
        with pytest.raises(problem, match=message):
            kind(schedule, 2)


def test_a_deep_copy_follows_the_epochs_of_the_original():
    dataset = Pictures(PolicyTransform(INVERT, epochs=3))
    copied = copy.deepcopy(dataset)
    dataset.transform.set_epoch(1)
    np.testing.assert_array_equal(copied[3].numpy(), 255 - IMAGES[3])


def test_what_comes_with_an_image_is_passed_through():
    transform = PolicyTransform(SCHEDULE, epochs=2, seed=1)
    transform.set_epoch(1)
    expected = transform(IMAGES[3])
    image, label = transform(IMAGES[3], 7)
    assert label == 7
    np.testing.assert_array_equal(image, expected)
    image, target = transform(IMAGES[3], np.arange(3))
    np.testing.assert_array_equal(image, expected)
    np.testing.assert_array_equal(target, np.arange(3))
    sample = {"name": "a", "picture": Image.fromarray(IMAGES[3]), "scores": [torch.ones(2), None]}
    found = transform(sample)
    np.testing.assert_array_equal(np.asarray(found["picture"]), expected)
    assert found["name"] == "a" and found["scores"][1] is None
    assert found["scores"][0] is sample["scores"][0]


@pytest.mark.parametrize("draw", ["sample", "random"])
def test_images_of_one_call_get_one_draw(draw):
    """As in torchvision's v2; also if their sizes differ."""
    transform = PolicyTransform(INVERT_HALF, epochs=1, draw=draw)
    inverted = 0
    for image, other in zip(IMAGES, IMAGES[::-1, :9], strict=True):
        found = transform({"left": Image.fromarray(image), "right": Image.fromarray(other)})
        left, right = ((np.asarray(found[name])) for name in ("left", "right"))
        expected = [255 - image, 255 - other] if (left != image).any() else [image, other]
        np.testing.assert_array_equal(left, expected[0])
        np.testing.assert_array_equal(right, expected[1])
        inverted += (left != image).any()
    assert 5 < inverted < 35


def test_of_several_arrays_the_image_is_the_one_that_can_be():
    transform = PolicyTransform(SCHEDULE, epochs=2, seed=1)
    transform.set_epoch(1)
    others = (np.arange(3), np.zeros((14, 11), np.uint8), torch.zeros(3), torch.ones(3, 14, 11))
    for other in others:
        kept, image = transform(other, IMAGES[3])
        assert kept is other
        np.testing.assert_array_equal(image, transform(IMAGES[3]))


def test_the_same_pixels_become_the_same_bytes_unless_drawn_at_random():
    pure = PolicyTransform(SCHEDULE, epochs=2)
    pure.set_epoch(1)
    np.testing.assert_array_equal(pure(IMAGES[0]), pure(IMAGES[0]))
    random = PolicyTransform(SCHEDULE, epochs=2, draw="random")
    random.set_epoch(1)
    torch.manual_seed(0)
    views = [random(IMAGES[0], index=0) for _ in range(10)]
    assert len({view.tobytes() for view in views}) > 5
    torch.manual_seed(0)
    again = [random(IMAGES[0], index=0) for _ in range(10)]
    np.testing.assert_array_equal(views, again)
    with pytest.raises(ValueError, match="draw is one of sample, random, not 'twice'"):
        PolicyTransform(SCHEDULE, epochs=2, draw="twice")


def test_shifts_follow_the_size_of_the_image():
    space = SearchSpace.of(["TranslateY"], [10], depth=1)  # 10 pixels of 100
    schedule = PolicySchedule(space, [1.0], [[1.0]], {"image_size": 100})
    transform = PolicyTransform(schedule, epochs=1)
    for side in (20, 50):
        image = np.full((side, side + 3, 3), 255, np.uint8)
        assert (transform(image) == 0).all((1, 2)).sum() == side // 10


def test_boxes_of_another_shape_are_refused():
    """(4, n) has as many numbers as (n, 4): it must not be taken for it."""
    transform = BoxPolicyTransform(SCHEDULE, 10)
    with pytest.raises(ValueError, match=r"\(n, 4\), not \(4, 2\)"):
        transform(np.zeros((16, 16, 3), np.uint8), np.ones((4, 2)), [1, 2])
    assert transform(np.zeros((16, 16, 3), np.uint8), [], [])[1:] == ([], [])
