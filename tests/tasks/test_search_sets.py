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


@pytest.mark.parametrize(("crop", "decode"), [("pad", "once"), ("resized", "each")])
def test_all_broken_files_of_both_sets_are_named_before_the_search_begins(tmp_path, crop, decode):
    root = write_folder(tmp_path)
    broken = sorted(root.rglob("*.png"))[::3]
    for file in broken:
        file.write_bytes(file.read_bytes()[:40])
    settings = folder_settings(root, crop=crop, decode=decode, val_batch_size=4)
    with pytest.raises(ValueError, match="4 unreadable images: .*ddas scan ROOT") as refused:
        sets_of(settings)
    assert all(str(file) in str(refused.value) for file in broken)
    with pytest.warns(RuntimeWarning, match="going on without 4 unreadable images"):
        assert sum(map(len, sets_of(settings.replace(bad_files="skip")))) == 8


# --- presets that fit the data --------------------------------------------------------------------


def test_the_preset_takes_the_images_that_there_are_and_says_so(tmp_path):
    root = write_folder(tmp_path, count=30, size=(70, 64))
    task = open_task(preset("folder").replace(root=root, model="small"))
    assert [len(part) for part in task.search_sets()] == [30, 30]
    training = task.settings.training
    assert (training.batch_size, training.val_batch_size) == (30, 30)
    assert task.overview() == [
        f"folder in {root}: 60 images in 2 classes, a, b",
        "split: 30 to train on (15 of each class), 30 to validate on (15 of each class)",
        "images: 70 × 64 pixels, colour",
        "note: the images have at most 64 pixels on their shorter side, too few for a crop of "
        "random parts: --crop pad (--crop resized does it anyway)",
        "note: the preset asks for 2000 + 2000 images; going on with --train-images 30 "
        "--val-images 30 --batch-size 30 --val-batch-size 30",
        "the network sees: 64 × 64 pixels, shifted by up to 4 pixels, mirrored at random",
    ]
    # What the run's config.json says fits as it is.
    again = open_task(task.settings)
    assert again.search_sets()[0].fingerprint() == task.search_sets()[0].fingerprint()
    assert not again.notes


def test_numbers_that_a_user_gave_are_not_changed(tmp_path):
    root = write_folder(tmp_path, count=30)
    given = preset("folder").replace(root=root, train_images=50)
    task = open_task(given)
    assert [len(part) for part in task.search_sets()] == [50, 10]
    with pytest.raises(ValueError, match=r"50 \+ 20 images are wanted, but there are only 60"):
        sets_of(given.replace(val_images=20))


@pytest.mark.parametrize(
    ("size", "crop", "means"),
    [
        ((64, 64), "auto", "pad"),
        ((96, 120), "auto", "pad"),
        ((97, 97), "auto", "resized"),
        ((64, 64), "resized", "resized"),
    ],
)
def test_small_images_are_not_cropped_like_photographs(tmp_path, size, crop, means):
    root = write_folder(tmp_path, count=2, size=size)
    assert preset("folder").data.crop == "auto"
    task = open_task(preset("folder").replace(root=root, crop=crop, train_images=2, val_images=2))
    task.search_sets()
    assert task.data.crop == task.settings.data.crop == means
    assert bool(task.notes) == (crop != means and means == "pad")
    assert ("a random part" in task.overview()[-1]) == (means == "resized")


def test_the_classes_drawn_are_named_and_their_images_counted(tmp_path):
    root = write_folder(tmp_path, classes=tuple("abcdef"), count=4)
    settings = preset("imagenet").replace(root=root, image_size=8, decode="once")
    task = open_task(settings.replace(classes=3))
    train, val = task.search_sets()
    assert (len(train), len(val)) == (9, 3)  # one of each class, at least
    drawn = ", ".join(train.class_names)
    assert f"24 images in 6 classes, of which 3 were drawn: {drawn}" in task.overview()[0]
    with pytest.raises(ValueError, match="the 3 classes drawn of 6 have only 12"):
        sets_of(settings.replace(classes=3, train_images=9, val_images=9))
    task = open_task(settings)
    task.search_sets()
    assert "the preset asks for 120 classes; going on with 6" in task.notes


def test_one_class_is_nothing_to_learn(tmp_path):
    with pytest.raises(ValueError, match="one class only.*, a: .* needs at least 2"):
        sets_of(folder_settings(write_folder(tmp_path / "one", classes=("a",))))
    with pytest.raises(ValueError, match="one class only"):
        sets_of(folder_settings(write_folder(tmp_path / "two"), classes=1))


def test_grey_images_are_recognised(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        for number in range(6):
            Image.new("L", (9, 9), 20 * number).save(tmp_path / name / f"{number}.png")
    task = open_task(folder_settings(tmp_path))
    task.search_sets()
    assert "images: 9 × 9 pixels, grey" in task.overview()


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
