"""Training and test images of every data set, in the layouts people have on disk."""

from __future__ import annotations

import numpy as np
import pytest
from layouts import write_cifar, write_images, write_svhn

from ddas_gpu.data.sources import ImageFiles
from ddas_gpu.search import settings as search_settings
from ddas_gpu.tasks.task import open_task
from ddas_gpu.train.settings import preset


def sets_of(data: str, **changes):
    return open_task(preset(data).replace(**changes)).training_sets()


def test_the_digits_test_on_what_a_search_has_not_seen():
    train, test = sets_of("digits", seed=5)
    assert (len(train), len(test)) == (1200, 597)
    searched = open_task(search_settings.preset("digits")).search_sets()
    seen = {image.tobytes() for part in searched for image in part.images}
    assert seen == {image.tobytes() for image in train.images}
    assert not seen & {image.tobytes() for image in test.images}


def test_cifar_test_batch(tmp_path):
    for name, classes in (("cifar10", 10), ("cifar100", 100)):
        root = write_cifar(tmp_path / name, name, count=200)
        train, test = sets_of(name, root=root)
        assert len(train) == (1000 if name == "cifar10" else 200)
        assert len(test) == 200
        assert len(train.class_names) == classes
        assert not (train.images[0] == test.images[0]).all()


def test_svhn_test_file(tmp_path):
    root = write_svhn(tmp_path / "svhn")
    _, test = sets_of("svhn", root=root)
    assert test.images.shape == (40, 32, 32, 3)
    assert test.labels.tolist() == [(n + 1) % 10 for n in range(40)]
    (root / "test_32x32.mat").unlink()
    with pytest.raises(ValueError, match="has no test_32x32.mat"):
        sets_of("svhn", root=root)


def test_svhn_extra(tmp_path):
    root = write_svhn(tmp_path / "svhn")
    alone, _ = sets_of("svhn", root=root)
    with pytest.raises(ValueError, match="has no extra_32x32.mat"):
        sets_of("svhn", root=root, svhn_extra=True)
    (root / "extra_32x32.mat").write_bytes((root / "train_32x32.mat").read_bytes())
    both, _ = sets_of("svhn", root=root, svhn_extra=True)
    assert (both.images == np.concatenate([alone.images] * 2)).all()
    assert (both.labels == np.tile(alone.labels, 2)).all()


def test_files_stay_on_disk(tmp_path):
    root = write_images(tmp_path / "data", ("a", "b"), count=3)
    train, test = sets_of("folder", root=root)
    assert isinstance(train, ImageFiles)
    assert [file.parent.parent.name for file in test.files] == ["val"] * 6
    assert test.labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_shares_keep_the_proportions_and_follow_the_seed(tmp_path):
    root = write_cifar(tmp_path / "cifar10", count=100)
    shares = {"root": root, "train_share": 0.1, "test_share": 0.3}
    train, test = sets_of("cifar10", **shares)
    assert np.bincount(train.labels).tolist() == [5] * 10
    assert np.bincount(test.labels).tolist() == [3] * 10
    again, other = (sets_of("cifar10", seed=seed, **shares)[0] for seed in (0, 1))
    assert (again.images == train.images).all()
    assert not (other.images == train.images).all()
