"""A user's data as a source: what an image may be, what tells data from other data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from own_data import TRAIN, Digits, arrays
from PIL import Image
from torch.utils.data import Dataset

from ddas_gpu.data.datasets import collate, one_size, open_examples, to_pixels

SIDES = st.integers(1, 9)


@given(height=SIDES, width=SIDES, seed=st.integers(0, 99))
def test_every_form_of_an_image_has_the_same_pixels(height, width, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    forms = (pixels, Image.fromarray(pixels), torch.from_numpy(pixels).permute(2, 0, 1))
    for form in forms:
        assert np.array_equal(to_pixels(form), pixels)
    grey = pixels[..., :1]
    for form in (grey, grey[..., 0], torch.from_numpy(grey).permute(2, 0, 1)):
        assert np.array_equal(to_pixels(form), grey.repeat(3, 2))


@pytest.mark.parametrize(
    "image", [np.zeros((4, 4, 3)), torch.zeros(3, 4, 4), np.zeros((4, 4, 4), np.uint8)]
)
def test_other_images_are_refused(image):
    with pytest.raises(ValueError, match="before any normalisation"):
        to_pixels(image)


def test_read_once_or_for_each_batch_gives_the_same_examples():
    examples = open_examples(Digits(TRAIN)).subset(np.array([5, 3, 8]))
    read = examples.in_memory(workers=2)
    assert examples.members() == read.members() == ("5", "3", "8")
    for sample in range(3):
        image, target = examples.look([sample])[0]
        assert np.array_equal(image, read.images[sample]) and target == read.targets[sample]
    assert read.subset(np.array([2])).targets == [read.targets[2]]


def test_fingerprints_see_pixels_targets_and_numbers():
    images, labels = arrays(TRAIN)
    other_images, other_labels = images.copy(), labels.copy()
    other_images[7, 3, 3, 0] ^= 1
    other_labels[7] += 1
    data = [(images, labels), (other_images, labels), (images, other_labels)]
    data.append((images[:-1], labels[:-1]))
    for kind in (lambda examples: examples, lambda examples: examples.in_memory(1)):
        found = [kind(open_examples(each)).fingerprint() for each in data]
        assert len(set(found)) == 4
        assert found == [kind(open_examples(each)).fingerprint() for each in data]


def test_sizes():
    mixed = [(np.zeros((4, 6 + i, 3), np.uint8), i) for i in range(3)]
    assert one_size(open_examples(mixed)) is None
    assert one_size(open_examples(mixed[:1] * 3)) == (4, 6)
    read = open_examples(mixed).in_memory(1, shortest=2)
    assert [image.shape[:2] for image in read.images] == [(2, 3), (2, 4), (2, 4)]


def test_targets_are_collated_as_by_a_data_loader_in_single_precision():
    assert collate([1, 2]).dtype == torch.int64
    assert collate([0.5, 2.0]).dtype == torch.float32
    both = collate([{"a": np.eye(2)[i], "b": (i, "x")} for i in range(2)])
    assert torch.equal(both["a"], torch.eye(2)) and both["a"].dtype == torch.float32
    assert torch.equal(both["b"][0], torch.tensor([0, 1])) and both["b"][1] == ("x", "x")


class Broken(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise KeyError("no such file")


def test_an_error_in_a_worker_says_what_went_wrong():
    with pytest.raises(KeyError, match="no such file"):
        open_examples(Broken()).in_memory(1)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [([], "no examples"), ([3], "a mapping, not int"), ([(1, 2, 3)], "a mapping, not 3 values")],
)
def test_items_must_be_pairs(data, sentence):
    with pytest.raises(ValueError, match=sentence):
        open_examples(data).look([0])


def test_a_list_of_two_is_a_pair_of_arrays_or_two_examples():
    images, labels = arrays(TRAIN)
    assert len(open_examples([images, labels])) == len(images)
    assert len(open_examples([(images[0], 3), (images[1], 4)])) == 2
    assert len(open_examples([{"image": image, "label": 3} for image in images[:2]])) == 2


@pytest.mark.parametrize(
    "targets",
    [
        [None, None],
        [torch.zeros(2, 4), torch.zeros(3, 4)],
        [[1], [1, 2]],
        [{"a": 1}, {"b": 1}],
        [Image.new("L", (2, 2))] * 2,
    ],
)
def test_targets_that_do_not_collate(targets):
    with pytest.raises(ValueError, match="do not collate to a batch .* padded"):
        collate(targets)


def test_images_of_another_size_are_refused_where_there_is_one():
    examples = replace(open_examples(Digits(TRAIN)), size=(16, 16))
    assert examples.look([3])[0][0].shape == (16, 16, 3)
    with pytest.raises(ValueError, match=r"image 3 of Digits has \(16, 16\) pixels, others \(8, 8"):
        replace(examples, size=(8, 8)).look([3])
