"""Every layout on disk opens to the right pixels and labels; damaged ones are refused in words."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from ddas_gpu.data.catalog import find_data
from ddas_gpu.data.decoding import read_image, read_images
from ddas_gpu.data.digits import open_digits
from ddas_gpu.data.folder import open_folder
from ddas_gpu.data.opening import find_root


def search_images(name: str, root: Path, size: int):
    return find_data(name).reader.search_images(root, size)


def write_image(path: Path, value: int = 0, size: tuple[int, int] = (6, 4), **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 2 * value, 255 - value)).save(path, **options)


# --- digits ---------------------------------------------------------------------------------------


def test_digits_are_all_there_enlarged_and_grey():
    source = open_digits(16)
    assert source.images.shape == (1797, 16, 16, 3)
    assert source.images.dtype == np.uint8
    assert source.labels.dtype == np.int64
    assert source.class_names == tuple("0123456789")
    assert (source.images[..., 0] == source.images[..., 2]).all()
    assert source.images.max() == 255  # ink is white


def test_digits_take_no_folder(tmp_path):
    with pytest.raises(ValueError, match="part of ddas_gpu"):
        search_images("digits", tmp_path, 16)


# --- folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("below", ["", "train"])
def test_folder_of_classes(tmp_path, below):
    write_image(tmp_path / below / "cat" / "b.png", 20)
    write_image(tmp_path / below / "cat" / "a.PNG", 10)
    write_image(tmp_path / below / "ant" / "c.png", 30)
    (tmp_path / below / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / below / ".hidden").mkdir()
    (tmp_path / below / "__MACOSX" / "cat").mkdir(parents=True)
    for name in ("._b.png", ".DS_Store"):
        (tmp_path / below / "cat" / name).write_bytes(b"left by a Mac")
    source = open_folder(tmp_path)
    assert source.class_names == ("ant", "cat")
    assert source.labels.tolist() == [0, 1, 1]
    assert [file.name for file in source.files] == ["c.png", "a.PNG", "b.png"]
    some = read_images([source.files[2], source.files[0]])
    assert some[:, 0, 0].tolist() == [[20, 40, 235], [30, 60, 225]]


def test_images_of_different_sizes_come_as_a_list(tmp_path):
    write_image(tmp_path / "a" / "1.png", size=(6, 4))
    write_image(tmp_path / "a" / "2.png", size=(5, 9))
    images = read_images(open_folder(tmp_path).files)
    assert [image.shape for image in images] == [(4, 6, 3), (9, 5, 3)]


def test_large_images_are_reduced_to_bound_the_memory(tmp_path):
    write_image(tmp_path / "a" / "1.png", size=(300, 100))
    files = open_folder(tmp_path).files
    assert read_images(files, shortest=20).shape == (1, 20, 60, 3)
    assert read_images(files, shortest=200).shape == (1, 100, 300, 3)


def damaged(path: Path, damage: str) -> None:
    Image.effect_noise((64, 64), 50).convert("RGB").save(path)
    content = path.read_bytes()
    path.write_bytes({"empty": b"", "text": b"hello", "cut": content[: len(content) // 2]}[damage])


@pytest.mark.parametrize("suffix", ["jpg", "png"])
@pytest.mark.parametrize("damage", ["empty", "text", "cut"])
def test_an_unreadable_image_is_named(tmp_path, suffix, damage):
    path = tmp_path / f"broken.{suffix}"
    damaged(path, damage)
    with pytest.raises(ValueError, match=f"cannot read the image .*broken.{suffix}"):
        read_image(path)


def test_wrong_layouts_say_what_is_expected(tmp_path):
    with pytest.raises(ValueError, match="ROOT/CLASS/IMAGE"):
        open_folder(tmp_path)
    write_image(tmp_path / "loose.png")
    with pytest.raises(ValueError, match="ROOT/CLASS/IMAGE"):
        open_folder(tmp_path)
    write_image(tmp_path / "full" / "1.png")
    (tmp_path / "void").mkdir()
    with pytest.raises(ValueError, match="void holds no image"):
        open_folder(tmp_path)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (["cifar10/train/cat/1.png", "coco/a/1.png"], "cifar10/train is a.*did you mean .*cifar10"),
        (["all/2023/may/1.png", "all/2024/june/1.png"], "2023 is a folder in a folder"),
        (["test/1.png", "val/2.png"], "holds test and val, which are parts of a data set"),
        (["Train/1.png", "Test/2.png"], "holds Test and Train, which are parts"),
        (["train/1.png", "test/1.png"], "holds test and train, which are parts"),
        (["test/cat/1.png", "val/cat/2.png"], "test/cat is a folder in a folder"),
    ],
)
def test_layouts_that_cannot_be_meant_are_refused(tmp_path, images, said):
    for image in images:
        write_image(tmp_path / image)
    with pytest.raises(ValueError, match=f"{said}.*ROOT/CLASS/IMAGE"):
        open_folder(tmp_path)


def test_a_class_may_be_called_train(tmp_path):
    for name in ("bus", "train"):
        write_image(tmp_path / name / "1.png")
    assert open_folder(tmp_path).class_names == ("bus", "train")
    for name in ("bus", "train"):
        write_image(tmp_path / "below" / "train" / name / "1.png")
    assert open_folder(tmp_path / "below").class_names == ("bus", "train")


def test_tiny_imagenet_has_a_folder_between_class_and_images(tmp_path):
    write_image(tmp_path / "train" / "n1" / "images" / "1.png")
    (tmp_path / "train" / "n1" / "n1_boxes.txt").write_text("1.png 0 0 6 4")
    assert [file.name for file in open_folder(tmp_path).files] == ["1.png"]


# --- CIFAR as published ---------------------------------------------------------------------------


def write_cifar10(folder: Path) -> np.ndarray:
    """Five batches of four images each, as the published archive has them."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (20, 32, 32, 3), np.uint8)
    planes = images.transpose(0, 3, 1, 2).reshape(20, 3072)
    for number in range(5):
        part = slice(4 * number, 4 * number + 4)
        batch = {"data": planes[part], "labels": [number, 9, 0, 1]}
        (folder / f"data_batch_{number + 1}").write_bytes(pickle.dumps(batch, 2))
    meta = {"label_names": [f"class {n}" for n in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta, 2))
    return images


@pytest.mark.parametrize("below", ["", "cifar-10-batches-py"])
def test_cifar10_batches(tmp_path, below):
    images = write_cifar10(tmp_path / "cifar10" / below)
    source = search_images("cifar10", tmp_path / "cifar10", 32)
    np.testing.assert_array_equal(source.images, images)
    assert source.labels.tolist() == [label for n in range(5) for label in (n, 9, 0, 1)]
    assert source.class_names[3] == "class 3"


def test_cifar100_batches(tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (6, 3072), np.uint8)
    train = {"data": images, "fine_labels": [5, 4, 3, 2, 1, 0], "coarse_labels": [0] * 6}
    (tmp_path / "train").write_bytes(pickle.dumps(train, 2))
    meta = {"fine_label_names": list("abcdef"), "coarse_label_names": ["z"]}
    (tmp_path / "meta").write_bytes(pickle.dumps(meta, 2))
    source = search_images("cifar100", tmp_path, 32)
    assert source.labels.tolist() == [5, 4, 3, 2, 1, 0]
    assert source.class_names == tuple("abcdef")


def test_cifar_as_image_files(tmp_path):
    write_image(tmp_path / "train" / "bird" / "1.png", size=(32, 32))
    assert search_images("cifar10", tmp_path, 32).class_names == ("bird",)


class Bomb:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_cifar_batch_that_wants_to_run_code_is_refused(tmp_path):
    folder, mark = tmp_path / "cifar10", tmp_path / "exploded"
    write_cifar10(folder)
    (folder / "data_batch_3").write_bytes(pickle.dumps({"data": Bomb(mark)}))
    with pytest.raises(ValueError, match="data_batch_3 is not a pickle of plain NumPy data"):
        search_images("cifar10", folder, 32)
    assert not mark.exists()


@pytest.mark.parametrize(
    "batch",
    [{"data": np.zeros((4, 3072), np.uint8)}, {"data": np.zeros((4, 5), np.uint8), "labels": [0]}],
)
def test_batches_that_are_not_cifar_are_refused(tmp_path, batch):
    write_cifar10(tmp_path / "cifar10")
    (tmp_path / "cifar10" / "data_batch_2").write_bytes(pickle.dumps(batch, 2))
    with pytest.raises(ValueError, match="published cifar10 batches"):
        search_images("cifar10", tmp_path / "cifar10", 32)


# --- SVHN as published ----------------------------------------------------------------------------


def test_svhn_calls_the_tenth_class_zero(tmp_path):
    images = np.random.default_rng(2).integers(0, 256, (32, 32, 3, 3), np.uint8)
    savemat(tmp_path / "train_32x32.mat", {"X": images, "y": [[1], [10], [9]]})
    source = search_images("svhn", tmp_path, 32)
    assert source.labels.tolist() == [1, 0, 9]
    np.testing.assert_array_equal(source.images[2], images[..., 2])


def test_damaged_or_missing_svhn_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no train_32x32\.mat"):
        search_images("svhn", tmp_path, 32)
    (tmp_path / "train_32x32.mat").write_bytes(b"MATLAB 5.0 MAT-file, but not for long")
    with pytest.raises(ValueError, match=r"train_32x32\.mat is not SVHN's"):
        search_images("svhn", tmp_path, 32)
    savemat(tmp_path / "train_32x32.mat", {"X": np.zeros((8, 8, 3, 2)), "y": [[1], [2]]})
    with pytest.raises(ValueError, match="not 32 × 32 RGB"):
        search_images("svhn", tmp_path, 32)


# --- where data lies ------------------------------------------------------------------------------


def test_roots_are_looked_for_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DDAS_DATA", raising=False)
    with pytest.raises(ValueError, match="no folder data/cifar10; it must hold"):
        find_root("cifar10", None)
    (tmp_path / "data" / "cifar10").mkdir(parents=True)
    assert find_root("cifar10", None) == Path("data/cifar10")
    monkeypatch.setenv("DDAS_DATA", str(tmp_path / "store"))
    assert find_root("cifar10", None) == Path("data/cifar10")
    (tmp_path / "store" / "cifar10").mkdir(parents=True)
    assert find_root("cifar10", None) == tmp_path / "store" / "cifar10"
    with pytest.raises(ValueError, match="no folder elsewhere"):
        find_root("cifar10", Path("elsewhere"))
    with pytest.raises(ValueError, match="needs --root"):
        find_root("folder", None)
