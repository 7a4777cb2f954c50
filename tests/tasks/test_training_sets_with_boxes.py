"""All training and test images of COCO, and what is said of data sets that cannot be trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_coco import CATEGORIES, write_coco, write_split

from ddas_gpu.data.coco import Coco
from ddas_gpu.tasks.task import open_task
from ddas_gpu.train.settings import preset


def sets(root: Path, seed: int = 0, **changes) -> tuple[Coco, Coco]:
    return open_task(preset("coco").replace(root=root, seed=seed, **changes)).training_sets()


def names(coco: Coco) -> list[str]:
    return [image.file.name for image in coco.images]


def test_train_and_val(tmp_path):
    train, test = sets(write_coco(tmp_path))
    assert len(train.images) == 9 and {i.file.parent.name for i in train.images} == {"train2017"}
    assert len(test.images) == 5 and {i.file.parent.name for i in test.images} == {"val2017"}
    assert train.class_names == ("square", "bar")


def test_shares_are_drawn_by_the_seed(tmp_path):
    write_coco(tmp_path, train=20, val=10)
    train, test = sets(tmp_path, train_share=0.5, test_share=0.3)
    assert (len(train.images), len(test.images)) == (10, 3)
    assert names(train) == sorted(names(train))
    again = sets(tmp_path, train_share=0.5, test_share=0.3)
    assert [names(part) for part in again] == [names(train), names(test)]
    assert names(sets(tmp_path, 1, train_share=0.5)[0]) != names(train)
    assert len(sets(tmp_path, train_share=0.001)[0].images) == 1


def test_only_training_does_without_the_empty_images(tmp_path):
    train, test = sets(write_coco(tmp_path), drop_empty=True)
    assert (len(train.images), len(test.images)) == (8, 5)


def test_test_images_of_another_folder(tmp_path):
    write_coco(tmp_path / "one")
    write_coco(tmp_path / "two", val=3)
    _, test = sets(tmp_path / "one", test_root=tmp_path / "two")
    assert len(test.images) == 3


def test_unreadable_files(tmp_path):
    write_coco(tmp_path)
    (tmp_path / "train2017" / "004.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"004\.png \(the file is empty\)"):
        sets(tmp_path, bad_files="stop")
    with pytest.warns(RuntimeWarning, match=r"004\.png"):
        train, _ = sets(tmp_path, bad_files="skip")
    assert "004.png" not in names(train) and len(train.images) == 8
    assert len(sets(tmp_path, bad_files="trust")[0].images) == 9


def test_no_test_images(tmp_path):
    write_split(tmp_path, "train2017", 3)
    with pytest.raises(ValueError, match=r"instances_val2017\.json is missing; it must hold"):
        sets(tmp_path)


def test_test_images_without_a_box(tmp_path):
    write_split(tmp_path, "train2017", 3)
    write_split(tmp_path, "val2017", 3, boxes=0)
    with pytest.raises(ValueError, match="none of the 3 test images .* there is nothing to find"):
        sets(tmp_path)


def test_a_share_of_the_test_images_without_a_box(tmp_path):
    write_split(tmp_path, "train2017", 3)
    write_split(tmp_path, "val2017", 2)  # the second is empty
    found = set()
    for seed in range(8):
        try:
            found.add(len(sets(tmp_path, seed, test_share=0.5)[1].images))
        except ValueError as error:
            found.add(str(error).partition(" test images")[0])
    assert found == {1, "none of the 1"}


def test_other_categories(tmp_path):
    write_split(tmp_path, "train2017", 3)
    write_split(tmp_path, "val2017", 3, categories=(*CATEGORIES, {"id": 9, "name": "ring"}))
    with pytest.raises(ValueError, match="same classes as the training images, .* has ring"):
        sets(tmp_path)
