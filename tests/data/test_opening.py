"""What may be given as the root of a pipeline, and what is said about the rest."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ddas_gpu.data.folder import open_folder
from ddas_gpu.data.opening import open_images
from ddas_gpu.data.sources import ImageArrays, ImageFiles, Records


def test_folders_arrays_and_sources(folder, arrays):
    for root in (folder, str(folder), open_folder(folder)):
        images = open_images(root)
        assert isinstance(images, ImageFiles) and len(images) == 15
        assert images.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    for root in (arrays, list(arrays), ImageArrays(*arrays, ("a", "b"))):
        images = open_images(root)
        assert isinstance(images, ImageArrays) and len(images) == 22


def test_the_training_part_of_a_data_set(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "train")
    assert len(open_images(tmp_path)) == 15


@pytest.mark.parametrize(("ending", "kind"), [("tar", "webdataset"), ("tfrecord", "tfrecord")])
def test_records_as_a_file_files_or_a_folder(tmp_path, ending, kind):
    files = [tmp_path / f"{i}.{ending}" for i in range(2)]
    for file in files:
        file.touch()
    for root in (files[0], files, [str(file) for file in files], tmp_path):
        images = open_images(root)
        assert isinstance(images, Records) and images.kind == kind
        assert list(images.files) == (files[:1] if root == files[0] else files)


def test_a_format_that_dali_cannot_read_is_named(folder, tmp_path):
    root = Path(shutil.copytree(folder, tmp_path / "images"))
    picture = Image.new("RGB", (9, 9))
    picture.save(root / "class0" / "9.gif")
    with pytest.raises(ValueError, match="9.gif .DALI does not read this format."):
        open_images(root)
    picture.save(root / "class0" / "8.jpg", format="gif")
    with pytest.warns(RuntimeWarning, match="8.jpg .a GIF, which DALI does not read.*9.gif"):
        assert len(open_images(root, "skip")) == 15


def test_nothing_is_left(tmp_path):
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "a.jpg").touch()
    with (
        pytest.warns(RuntimeWarning, match="a.jpg"),
        pytest.raises(ValueError, match="nothing is left to read: 1 unreadable image: .*a.jpg"),
    ):
        open_images(tmp_path, "skip")


def test_roots_that_hold_nothing(tmp_path):
    with pytest.raises(ValueError, match="there is no folder or file .*nowhere"):
        open_images(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="holds no class folders with images; it must have one"):
        open_images(tmp_path)
    (tmp_path / "a.txt").touch()
    with pytest.raises(ValueError, match="neither .tar nor .tfrecord files"):
        open_images(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="there is no file gone.tar"):
        open_images(["gone.tar"])


@pytest.mark.parametrize(
    ("root", "problem", "message"),
    [
        (7, TypeError, "not from int"),
        ((), TypeError, "not from tuple"),
        ((np.zeros((2, 4, 4, 3)), [0, 1]), ValueError, "uint8 .N, H, W, 3., not float64"),
        ((np.zeros((2, 4, 4), np.uint8), [0, 1]), ValueError, "not uint8 .2, 4, 4."),
        ((np.zeros((2, 4, 4, 3), np.uint8), [0]), ValueError, "2 images, but labels of .* .1,."),
    ],
)
def test_what_is_no_data_set(root, problem, message):
    with pytest.raises(problem, match=message):
        open_images(root)
