"""From settings to the two sets of a search."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from PIL import Image

from ddas_gpu.data import proxy_sets
from ddas_gpu.search.settings import DataSettings, preset

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


@pytest.mark.parametrize(
    ("crop", "decode"), [("pad", "once"), ("resized", "once"), ("resized", "each")]
)
def test_folder_batches_have_the_size_asked_for(tmp_path, crop, decode):
    settings = folder_settings(write_folder(tmp_path), crop=crop, decode=decode)
    train, val = proxy_sets(settings, 0)
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


def from_files(root, **changes):
    pytest.importorskip("nvidia.dali")
    return proxy_sets(folder_settings(root, crop="resized", decode="each", **changes), 0)


def test_images_that_stay_in_their_files_repeat_and_turn(tmp_path):
    root = write_folder(tmp_path)
    train, val = from_files(root)
    _, turned = from_files(root, sanity_check="rotate90")
    indices = np.array([3, 0, 2])
    first, again = (train.batch(indices, np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    middle = val.batch(indices, np.random.default_rng(1))
    np.testing.assert_array_equal(
        turned.batch(indices, np.random.default_rng(2)), [np.rot90(image) for image in middle]
    )
    assert (
        train.batch(np.arange(8), np.random.default_rng(0))[:, 0, 0, 0] // 10 == train.labels[:8]
    ).all()
    assert train.fingerprint() == from_files(root)[0].fingerprint() != val.fingerprint()


def test_broken_files_are_named_before_the_search_begins(tmp_path):
    root = write_folder(tmp_path)
    broken = sorted(root.rglob("*.png"))[3]
    broken.write_bytes(broken.read_bytes()[:40])
    with pytest.raises(ValueError, match=broken.name):
        from_files(root)


def test_arrays_cannot_be_decoded_for_each_batch():
    with pytest.raises(ValueError, match="needs image files; digits has none"):
        proxy_sets(dataclasses.replace(DIGITS, crop="resized", decode="each"), 0)


def test_without_dali_the_images_are_kept_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    settings = folder_settings(write_folder(tmp_path), crop="resized", decode="each")
    with pytest.warns(RuntimeWarning, match="DALI is not installed"):
        train, _ = proxy_sets(settings, 0)
    assert train.batch(np.arange(5), np.random.default_rng(0)).shape == (5, 8, 8, 3)


@pytest.mark.parametrize(("crop", "decode"), [("pad", "once"), ("resized", "each")])
def test_members_tell_which_images_were_taken(tmp_path, crop, decode):
    if decode == "each":
        pytest.importorskip("nvidia.dali")
    root = write_folder(tmp_path)
    train, val = proxy_sets(folder_settings(root, crop=crop, decode=decode), 0)
    assert len(set(train.members) | set(val.members)) == len(train) + len(val) == 12
    names = tuple("ab"[label] for label in train.labels)
    assert tuple(member.split("/")[0] for member in train.members) == names
    digits, _ = proxy_sets(DIGITS, 0)
    assert len(set(digits.members)) == len(digits)
