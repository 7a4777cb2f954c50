"""ImageNet's flat val/: its labels in the files people have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from layouts import write_images
from scipy.io import savemat

from ddas_gpu.tasks.task import open_task
from ddas_gpu.train.settings import preset

CLASSES = ("n01440764", "n01443537", "n02084071")
LABELS = [2, 0, 1, 1, 0]  # of the files in alphabetical order


@pytest.fixture
def root(tmp_path) -> Path:
    """train/ with class folders, val/ flat."""
    root = write_images(tmp_path / "imagenet", CLASSES, count=2)
    loose = sorted((root / "val").rglob("*.jpeg"))[: len(LABELS)]
    for number, file in enumerate(loose):
        file.rename(root / "val" / f"ILSVRC2012_val_{number:08}.JPEG")
    for name in CLASSES:
        for file in (root / "val" / name).iterdir():
            file.unlink()
        (root / "val" / name).rmdir()
    return root


def labels(root: Path) -> list[int]:
    train, test = open_task(preset("imagenet").replace(root=root)).training_sets()
    assert [file.name for file in test.files] == [name(n) for n in range(5)]
    assert train.class_names == test.class_names == CLASSES
    return test.labels.tolist()


def name(number: int) -> str:
    return f"ILSVRC2012_val_{number:08}.JPEG"


def test_class_names_in_order(root):
    text = "\n".join(CLASSES[label] for label in LABELS)
    (root / "imagenet_2012_validation_synset_labels.txt").write_text(text + "\n")
    assert labels(root) == LABELS


def test_files_and_numbers_in_any_order(root):
    lines = [f"{name(number)} {label}\n" for number, label in enumerate(LABELS)]
    (root / "val" / "val.txt").write_text("".join(reversed(lines)))
    assert labels(root) == LABELS


def test_files_without_endings_and_class_names(root):
    rows = [f"{name(n)[:-5]},{CLASSES[label]} 1 2 3 4\n" for n, label in enumerate(LABELS)]
    (root / "LOC_val_solution.csv").write_text("ImageId,PredictionString\n" + "".join(rows))
    assert labels(root) == LABELS


def write_devkit(root: Path) -> Path:
    """The devkit numbers its classes from 1 on in an order of its own."""
    folder = root / "ILSVRC2012_devkit_t12" / "data"
    folder.mkdir(parents=True)
    numbers = [3, 1, 2]
    synsets = np.array(
        list(zip(numbers, CLASSES, strict=True)),
        dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O")],
    )
    savemat(folder / "meta.mat", {"synsets": synsets})
    text = "".join(f"{numbers[label]}\n" for label in LABELS)
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text(text)
    return folder


def test_the_devkit(root):
    write_devkit(root)
    assert labels(root) == LABELS


def test_the_devkit_without_its_key(root):
    (write_devkit(root) / "meta.mat").unlink()
    with pytest.raises(ValueError, match="need its meta.mat"):
        labels(root)
    (root / "ILSVRC2012_devkit_t12" / "data" / "meta.mat").write_bytes(b"hello")
    with pytest.raises(ValueError, match="meta.mat is not the devkit's"):
        labels(root)


def test_no_labels(root):
    with pytest.raises(ValueError, match="no labels for its images: put one of LOC_val_solution"):
        labels(root)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("n01440764\n", "has 1 labels for 5 images"),
        ("moon\n" * 5, "the label 'moon' of ILSVRC2012_val_00000000.JPEG is not a class"),
        ("7\n" * 5, "the label '7'"),
        (f"{name(1)} 0\n", "no label for ILSVRC2012_val_00000000.JPEG"),
    ],
)
def test_labels_that_do_not_fit(root, text, reason):
    (root / "val.txt").write_text(text)
    with pytest.raises(ValueError, match=reason):
        labels(root)
