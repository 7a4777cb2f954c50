"""Training and test images of every data set, in the layouts people have on disk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from layouts import write_cifar, write_images, write_svhn

from ddas_gpu.data import proxy_sets
from ddas_gpu.data.full_sets import FileSource, full_sets
from ddas_gpu.search import settings
from ddas_gpu.train.settings import DataSettings


def test_the_digits_test_on_what_a_search_has_not_seen():
    sets = full_sets(DataSettings(), seed=5, in_memory=True)
    assert len(sets.train.labels) == 1200 and len(sets.test.labels) == 597
    searched = proxy_sets(settings.preset("digits").data, seed=0)
    seen = {image.tobytes() for part in searched for image in part.images}
    assert seen == {image.tobytes() for image in sets.train.images}
    assert not seen & {image.tobytes() for image in sets.test.images}


def test_cifar_test_batch(tmp_path):
    for name, classes in (("cifar10", 10), ("cifar100", 100)):
        root = write_cifar(tmp_path / name, name, count=200)
        data = DataSettings(data=name, root=root, image_size=32)
        sets = full_sets(data, 0, in_memory=True)
        assert len(sets.train.labels) == (1000 if name == "cifar10" else 200)
        assert len(sets.test.labels) == 200
        assert len(sets.class_names) == classes
        assert not (sets.train.images[0] == sets.test.images[0]).all()


def test_svhn_test_file(tmp_path):
    data = DataSettings(data="svhn", root=write_svhn(tmp_path / "svhn"), image_size=32)
    sets = full_sets(data, 0, in_memory=True)
    assert sets.test.images.shape == (40, 32, 32, 3)
    assert sets.test.labels.tolist() == [(n + 1) % 10 for n in range(40)]
    (data.root / "test_32x32.mat").unlink()
    with pytest.raises(ValueError, match="has no test_32x32.mat"):
        full_sets(data, 0, in_memory=True)


def test_svhn_extra(tmp_path):
    data = DataSettings(data="svhn", root=write_svhn(tmp_path / "svhn"), image_size=32)
    alone = full_sets(data, 0, in_memory=True)
    extra = replace(data, svhn_extra=True)
    with pytest.raises(ValueError, match="has no extra_32x32.mat"):
        full_sets(extra, 0, in_memory=True)
    train, more = data.root / "train_32x32.mat", data.root / "extra_32x32.mat"
    more.write_bytes(train.read_bytes())
    both = full_sets(extra, 0, in_memory=True)
    assert (both.train.images == np.concatenate([alone.train.images] * 2)).all()
    assert (both.train.labels == np.tile(alone.train.labels, 2)).all()


def test_files_stay_on_disk(tmp_path):
    root = write_images(tmp_path / "data", ("a", "b"), count=3)
    sets = full_sets(DataSettings(data="folder", root=root), 0, in_memory=False)
    assert isinstance(sets.train, FileSource)
    assert [file.parent.parent.name for file in sets.test.files] == ["val"] * 6
    assert sets.test.labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_shares_keep_the_proportions_and_follow_the_seed(tmp_path):
    root = write_cifar(tmp_path / "cifar10", count=100)
    data = DataSettings(data="cifar10", root=root, image_size=32, train_share=0.1, test_share=0.3)
    sets = full_sets(data, 0, in_memory=True)
    assert np.bincount(sets.train.labels).tolist() == [5] * 10
    assert np.bincount(sets.test.labels).tolist() == [3] * 10
    again, other = (full_sets(data, seed, in_memory=True) for seed in (0, 1))
    assert (again.train.images == sets.train.images).all()
    assert not (other.train.images == sets.train.images).all()
