"""From settings to the two sets of a search, and what the network sees of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from ddas_gpu.pipelines.batches import StepBatches
from ddas_gpu.pipelines.order import Order
from ddas_gpu.search.settings import SearchSettings, preset
from ddas_gpu.tasks.task import open_task

DIGITS = preset("digits")


def sets_of(settings: SearchSettings):
    return open_task(settings).search_sets()


def clean(settings: SearchSettings, training: bool, batch_size: int) -> torch.Tensor:
    """The first batch, in the order of the set."""
    task = open_task(settings)
    source = task.search_sets()[0 if training else 1]
    order = Order(len(source), batch_size, shuffle=False)
    return StepBatches(task.clean_feed(source, training=training), order, "cpu").batch(0).images


def write_folder(root, classes=("a", "b"), count=6, size=(20, 14), shade=0):
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(count):
            colour = (shade + 10 * label, number, 0)
            Image.new("RGB", size, colour).save(root / name / f"{number}.png")
    return root


def folder_settings(root, **changes) -> SearchSettings:
    values = {"root": root, "train_images": 8, "val_images": 4, "image_size": 8} | changes
    return preset("folder").replace(**values)


def test_digits_split_is_disjoint_and_repeats():
    train, val = sets_of(DIGITS)
    assert (len(train), len(val)) == (DIGITS.data.train_images, DIGITS.data.val_images)
    again, _ = sets_of(DIGITS)
    assert train.fingerprint() == again.fingerprint()
    assert train.fingerprint() != sets_of(DIGITS.replace(seed=1))[0].fingerprint()
    assert not set(train.members()) & set(val.members())


def test_the_sanity_check_rotates_the_validation_images_only():
    checked = DIGITS.replace(sanity_check="rotate90")
    assert clean(checked, True, 9).equal(clean(DIGITS, True, 9))
    expected = [
        np.asarray(Image.fromarray(image).transpose(Image.Transpose.ROTATE_90))
        for image in clean(DIGITS, False, 9).numpy()
    ]
    np.testing.assert_array_equal(clean(checked, False, 9), expected)


@pytest.mark.parametrize(
    ("crop", "decode"), [("pad", "once"), ("resized", "once"), ("resized", "each")]
)
def test_folder_batches_have_the_size_asked_for(tmp_path, crop, decode):
    settings = folder_settings(write_folder(tmp_path), crop=crop, decode=decode)
    assert clean(settings, True, 5).shape == (5, 8, 8, 3)
    assert clean(settings, False, 4).shape == (4, 8, 8, 3)
    assert clean(settings, True, 8)[..., 0].max() == 10


def test_labels_follow_the_images(tmp_path):
    settings = folder_settings(write_folder(tmp_path), crop="pad", padding=0)
    for data in sets_of(settings):
        assert (data.images[:, 0, 0, 0] == 10 * data.labels).all()
        assert np.bincount(data.labels).tolist() == [len(data) // 2] * 2


def test_fewer_classes_are_numbered_anew(tmp_path):
    root = write_folder(tmp_path, classes=tuple("abcdef"), count=9)
    train, val = sets_of(folder_settings(root, classes=2, crop="pad", padding=0))
    assert len(train.class_names) == 2
    assert set(train.labels) == set(val.labels) == {0, 1}
    reds = {10 * "abcdef".index(name) for name in train.class_names}
    assert set(train.images[:, 0, 0, 0].tolist()) == reds


def test_validation_images_from_another_folder(tmp_path):
    root = write_folder(tmp_path / "here")
    other = write_folder(tmp_path / "there", shade=100)
    train, val = sets_of(folder_settings(root, val_root=other, train_images=12))
    assert len(train) == 12
    assert max(image[..., 0].max() for image in train.images) < 100
    assert min(image[..., 0].min() for image in val.images) >= 100


def test_another_folder_must_have_the_same_classes(tmp_path):
    root = write_folder(tmp_path / "here")
    other = write_folder(tmp_path / "there", classes=("a", "c"))
    with pytest.raises(ValueError, match="same classes.* b, c"):
        sets_of(folder_settings(root, val_root=other))


def test_images_that_stay_in_their_files_repeat_and_rotate(tmp_path):
    pytest.importorskip("nvidia.dali")
    settings = folder_settings(write_folder(tmp_path), crop="resized", decode="each")
    first, again = (clean(settings, True, 8) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    rotated = clean(settings.replace(sanity_check="rotate90"), False, 4)
    middle = clean(settings, False, 4)
    np.testing.assert_array_equal(rotated, [np.rot90(image) for image in middle.numpy()])
    train, val = sets_of(settings)
    assert (first[:, 0, 0, 0].numpy() // 10 == train.labels).all()
    assert train.fingerprint() == sets_of(settings)[0].fingerprint() != val.fingerprint()


def test_broken_files_are_named_before_the_search_begins(tmp_path):
    root = write_folder(tmp_path)
    broken = sorted(root.rglob("*.png"))[3]
    broken.write_bytes(broken.read_bytes()[:40])
    for decode in ("once", "each"):
        with pytest.raises(ValueError, match=broken.name):
            sets_of(folder_settings(root, crop="resized", decode=decode))


def test_arrays_cannot_be_decoded_for_each_batch():
    with pytest.raises(ValueError, match="needs image files; digits has none"):
        sets_of(DIGITS.replace(crop="resized", decode="each"))


@pytest.mark.parametrize(("crop", "decode"), [("pad", "once"), ("resized", "each")])
def test_members_name_the_images_that_were_taken(tmp_path, crop, decode):
    root = write_folder(tmp_path)
    train, val = sets_of(folder_settings(root, crop=crop, decode=decode))
    assert len(set(train.members()) | set(val.members())) == len(train) + len(val) == 12
    names = tuple("ab"[label] for label in train.labels)
    assert tuple(member.split("/")[0] for member in train.members()) == names
    digits, _ = sets_of(DIGITS)
    assert len(set(digits.members())) == len(digits)
