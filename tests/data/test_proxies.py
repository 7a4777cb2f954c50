"""From settings to the two sets of a search."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from PIL import Image

from ddas_gpu.data import proxy_sets
from ddas_gpu.settings import DataSettings, preset

DIGITS = preset("digits").data


def write_folder(root, classes=("a", "b"), count=6, size=(20, 14), shade=0):
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(count):
            colour = (shade + 10 * label, number, 0)
            Image.new("RGB", size, colour).save(root / name / f"{number}.png")
    return root


def folder_settings(root, **changes) -> DataSettings:
    base = preset("folder").data
    values = {"root": root, "train_images": 8, "val_images": 4, "image_size": 8} | changes
    return dataclasses.replace(base, **values)


def test_digits_split_is_disjoint_and_repeats():
    train, val = proxy_sets(DIGITS, 0)
    assert (len(train), len(val)) == (DIGITS.train_images, DIGITS.val_images)
    again, _ = proxy_sets(DIGITS, 0)
    assert train.fingerprint() == again.fingerprint()
    assert train.fingerprint() != proxy_sets(DIGITS, 1)[0].fingerprint()
    # Only a handful of the 1,797 digits are twins of another one.
    twins = {i.tobytes() for i in train.images} & {i.tobytes() for i in val.images}
    assert len(twins) < 5


def test_the_sanity_check_turns_the_validation_images_only():
    train, val = proxy_sets(DIGITS, 0)
    turned_train, turned_val = proxy_sets(dataclasses.replace(DIGITS, sanity_check="rotate90"), 0)
    np.testing.assert_array_equal(turned_train.images, train.images)
    expected = [
        np.asarray(Image.fromarray(image).transpose(Image.Transpose.ROTATE_90))
        for image in val.images
    ]
    np.testing.assert_array_equal(turned_val.images, expected)


@pytest.mark.parametrize("crop", ["pad", "resized"])
def test_folder_batches_have_the_size_asked_for(tmp_path, crop):
    train, val = proxy_sets(folder_settings(write_folder(tmp_path), crop=crop), 0)
    generator = np.random.default_rng(0)
    assert train.batch(np.arange(5), generator).shape == (5, 8, 8, 3)
    assert val.batch(np.arange(4), generator).shape == (4, 8, 8, 3)
    assert train.batch(np.arange(8), generator)[..., 0].max() == 10


def test_labels_follow_the_images(tmp_path):
    train, val = proxy_sets(folder_settings(write_folder(tmp_path), crop="pad", padding=0), 0)
    for data in (train, val):
        assert (data.images[:, 0, 0, 0] == 10 * data.labels).all()
        assert np.bincount(data.labels).tolist() == [len(data) // 2] * 2


def test_fewer_classes_are_numbered_anew(tmp_path):
    root = write_folder(tmp_path, classes=tuple("abcdef"), count=9)
    train, val = proxy_sets(folder_settings(root, classes=2, crop="pad", padding=0), 0)
    assert len(train.class_names) == 2
    assert set(train.labels) == set(val.labels) == {0, 1}
    reds = {10 * "abcdef".index(name) for name in train.class_names}
    assert set(train.images[:, 0, 0, 0].tolist()) == reds


def test_validation_images_from_another_folder(tmp_path):
    root = write_folder(tmp_path / "here")
    other = write_folder(tmp_path / "there", shade=100)
    train, val = proxy_sets(folder_settings(root, val_root=other, train_images=12), 0)
    assert len(train) == 12
    assert max(image[..., 0].max() for image in train.images) < 100
    assert min(image[..., 0].min() for image in val.images) >= 100


def test_another_folder_must_have_the_same_classes(tmp_path):
    root = write_folder(tmp_path / "here")
    other = write_folder(tmp_path / "there", classes=("a", "c"))
    with pytest.raises(ValueError, match="same classes.*: b, c"):
        proxy_sets(folder_settings(root, val_root=other), 0)
