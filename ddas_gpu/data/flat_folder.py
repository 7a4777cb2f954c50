"""Test images in one folder, with their labels in a file: ImageNet's val/ as it is published."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ddas_gpu.data.matlab import read_mat
from ddas_gpu.data.sources import ImageFiles, is_image

DEVKIT = Path("ILSVRC2012_devkit_t12/data")
GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"
# "FILE LABEL" in each line, or only LABEL, for the files in alphabetical order.
LABEL_FILES = (
    "LOC_val_solution.csv",
    "val.txt",
    "labels.txt",
    "val_labels.txt",
    "imagenet_2012_validation_synset_labels.txt",
    GROUND_TRUTH,
)


def is_flat(folder: Path) -> bool:
    """Return whether the images lie in the folder itself."""
    return any(map(is_image, folder.iterdir()))


def open_flat(folder: Path, class_names: tuple[str, ...]) -> ImageFiles:
    """Open the images of `folder`, with the labels of the first of LABEL_FILES that is there.

    A label is a class name, its place in the sorted names, from 0 on, or in the devkit's file the
    devkit's own number, which `meta.mat` explains.
    """
    files = sorted(filter(is_image, folder.iterdir()))
    places = (folder, folder.parent, folder.parent / DEVKIT, folder / DEVKIT)
    found = [place / name for name in LABEL_FILES for place in places if (place / name).is_file()]
    if not found:
        raise ValueError(
            f"{folder} has no class folders, and no labels for its images: put one of "
            f"{', '.join(LABEL_FILES)} beside it"
        )
    path = found[0]
    known = {name: number for number, name in enumerate(class_names)}
    if path.name == GROUND_TRUTH:
        known |= _devkit_numbers(path.with_name(META), class_names)
    else:
        known |= {str(number): number for number in range(len(class_names))}
    lines = [line.replace(",", " ").split() for line in path.read_text().splitlines()]
    labels = _labels_of(files, [line for line in lines if line], path)
    for file, label in zip(files, labels, strict=True):
        if label not in known:
            raise ValueError(f"{path}: the label {label!r} of {file.name} is not a class")
    return ImageFiles(files, np.array([known[label] for label in labels]), class_names)


def _labels_of(files: list[Path], lines: list[list[str]], path: Path) -> list[str]:
    if all(len(line) == 1 for line in lines):
        if len(lines) != len(files):
            raise ValueError(f"{path} has {len(lines)} labels for {len(files)} images")
        return [label for (label,) in lines]
    # Some name the files without their ending.
    by_stem = {Path(line[0]).stem: line[1] for line in lines if len(line) > 1}
    missing = [file.name for file in files if file.stem not in by_stem]
    if missing:
        raise ValueError(f"{path} has no label for {missing[0]}")
    return [by_stem[file.stem] for file in files]


def _devkit_numbers(path: Path, class_names: tuple[str, ...]) -> dict[str, int]:
    """Return {devkit's number: class}."""
    if not path.is_file():
        raise ValueError(f"the labels of the devkit need its {META}, which is not at {path}")
    content = read_mat(path, f"the devkit's {META}", ("synsets",))
    try:
        rows = content["synsets"]
        numbers = {str(row["WNID"]): str(int(row["ILSVRC2012_ID"].item())) for row in rows}
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path} is not the devkit's {META}: {error}") from None
    return {numbers[name]: place for place, name in enumerate(class_names) if name in numbers}
