"""What may be given as the root of a pipeline, and what is said about the rest."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import Dataset, Subset

from ddas_gpu.data.folder import open_folder
from ddas_gpu.data.opening import expand_braces, open_images
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


class Own(Dataset):
    """A user's data set: what its items are is up to `__getitem__`."""

    def __init__(self, images, labels) -> None:
        self.images = self.files = images
        self.labels = labels

    def __getitem__(self, index: int):
        return 255 - self.images[index], self.labels[index]


@pytest.mark.parametrize(
    ("root", "problem", "message"),
    [
        (7, TypeError, "not from int"),
        ((), TypeError, "not from tuple"),
        ((np.zeros((2, 4, 4, 3)), [0, 1]), ValueError, "uint8 .N, H, W, 3., not float64"),
        ((np.zeros((2, 4, 4), np.uint8), [0, 1]), ValueError, "not uint8 .2, 4, 4."),
        ((np.zeros((0, 4, 4, 3), np.uint8), []), ValueError, "there are no images"),
        ((np.zeros((2, 4, 4, 3), np.uint8), [0.0, 1.5]), ValueError, "whole numbers .*not float64"),
        (Own([], []), TypeError, "not from Own; for a Dataset of your own .* PolicyTransform"),
        ("http://host/x-{0..3}.tar", ValueError, "http://host/x-.* is a URL: only local files"),
        (["s3://host/0.tar"], ValueError, "s3:/.* is a URL"),
        ((["https://host/a.jpg"], [0]), ValueError, "https://host/a.jpg is a URL"),
        (
            (np.zeros((2, 4, 4, 3), np.uint8), [0]),
            ValueError,
            "2 whole numbers as labels, not .* .1,.",
        ),
    ],
)
def test_what_is_no_data_set(root, problem, message):
    with pytest.raises(problem, match=message):
        open_images(root)


@pytest.mark.parametrize(
    "pattern",
    ["train-{0008..0011}.tar", "train-{0008..0009}.tar", "train-*.tar", "*-00{08,11}.tar"],
)
def test_patterns_of_shards(tmp_path, pattern):
    for number in range(8, 12):
        (tmp_path / f"train-{number:04}.tar").touch()
    images = open_images(f"{tmp_path}/{pattern}")
    expected = {"train-{0008..0009}.tar": (8, 9), "*-00{08,11}.tar": (8, 11)}
    numbers = expected.get(pattern, range(8, 12))
    assert [file.name for file in images.files] == [f"train-{n:04}.tar" for n in numbers]


def test_patterns_that_match_nothing(tmp_path):
    with pytest.raises(ValueError, match="no file matches .*nothing-.*tar"):
        open_images(f"{tmp_path}/nothing-*.tar")
    (tmp_path / "a-0.tar").touch()
    with pytest.raises(ValueError, match="there is no file .*a-1.tar"):
        open_images(f"{tmp_path}/a-{{0..1}}.tar")


def test_braces_as_in_a_shell():
    assert expand_braces("a{1..3}b{x,y}") == ["a1bx", "a1by", "a2bx", "a2by", "a3bx", "a3by"]
    assert expand_braces("{098..101}") == ["098", "099", "100", "101"]
    assert expand_braces("plain{}") == ["plain{}"]


def test_tfrecords_without_an_ending(tmp_path):
    for number in range(3):
        (tmp_path / f"train-{number:05}-of-00003").touch()
    for root in (tmp_path, f"{tmp_path}/train-*", f"{tmp_path}/train-{{00000..00002}}-of-00003"):
        images = open_images(root)
        assert isinstance(images, Records) and images.kind == "tfrecord" and len(images.files) == 3


def test_paths_with_labels(folder):
    files = sorted(folder.rglob("*.png"))
    for paths in (files, [str(file) for file in files], tuple(files)):
        images = open_images((paths, range(len(files))))
        assert isinstance(images, ImageFiles) and list(images.files) == files
        assert images.labels.tolist() == list(range(len(files)))
    with pytest.raises(ValueError, match="need .* whole numbers as labels, not int64"):
        open_images((files, [1, 2]))
    with pytest.raises(ValueError, match="need .* whole numbers as labels"):
        open_images((files, ["cat"] * len(files)))


class ImageFolder:
    """What torchvision's has."""

    def __init__(self, root: Path, transform=None) -> None:
        opened = open_folder(root)
        self.samples = [(str(f), int(n)) for f, n in zip(opened.files, opened.labels, strict=True)]
        self.targets = opened.labels.tolist()
        self.classes = list(opened.class_names)
        self.transform, self.target_transform = transform, None

    def __len__(self) -> int:
        return len(self.samples)


class CIFAR10:
    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.data, self.targets, self.classes = images, labels.tolist(), list("abc")


def test_torchvisions_data_sets(folder, arrays):
    expected = open_folder(folder)
    images = open_images(ImageFolder(folder))
    assert isinstance(images, ImageFiles) and list(images.files) == list(expected.files)
    assert (images.labels == expected.labels).all()
    assert images.class_names == expected.class_names
    part = open_images(Subset(Subset(ImageFolder(folder), [3, 9, 1]), [1, 2]))
    assert list(part.files) == [expected.files[i] for i in (9, 1)] and part.labels.tolist() == [
        1,
        0,
    ]
    in_memory = open_images(CIFAR10(*arrays))
    assert isinstance(in_memory, ImageArrays) and in_memory.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(in_memory.images, arrays[0])


def test_transforms_of_a_data_set_are_not_forgotten_silently(folder):
    with pytest.warns(RuntimeWarning, match="the transforms of ImageFolder are not applied"):
        open_images(ImageFolder(folder, transform=np.asarray))


def test_items_that_a_user_changes_are_not_forgotten_silently(folder):
    class Changed(ImageFolder):
        def __getitem__(self, index: int):
            return None, 0

    with pytest.warns(RuntimeWarning, match="the __getitem__ of Changed is not called"):
        open_images(Changed(folder))
    Changed.__getitem__.__module__ = "torchvision.datasets.folder"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_images(Changed(folder))


def test_a_data_set_of_anything_else():
    with pytest.raises(TypeError, match="torchvision data set such as ImageFolder, not from"):
        open_images(Subset(range(3), [1]))
