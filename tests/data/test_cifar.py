"""Every published version of CIFAR opens to the same images."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
from layouts import write_cifar

from ddas_gpu.data.cifar import CifarReader, find_batches, open_cifar

CASES = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


@pytest.fixture(params=CASES)
def published(request, tmp_path) -> tuple[str, Path]:
    return request.param, write_cifar(tmp_path / "published", request.param, count=100)


def opened(name: str, root: Path) -> list[np.ndarray]:
    arrays = []
    for test in (False, True):
        source = open_cifar(find_batches(root, name), name, test=test)
        arrays += [source.images, source.labels, np.array(source.class_names)]
    return arrays


def same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> bool:
    return all((a == b).all() for a, b in zip(ours, theirs, strict=True))


def packed(folder: Path, archive: Path) -> Path:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    return archive.parent


def test_the_archive_need_not_be_unpacked(published, tmp_path):
    name, root = published
    archive = {"cifar10": "cifar-10-python.tar.gz", "cifar100": "cifar-100-python.tar.gz"}[name]
    folder = packed(root / CASES[name], tmp_path / "packed" / archive)
    assert same(opened(name, folder), opened(name, root))
    assert len(CifarReader(name).search_images(folder, 32).labels) == (
        500 if name == "cifar10" else 100
    )


def write_binary(name: str, root: Path, target: Path) -> None:
    """The same images in the binary version."""
    train, labels, names, test, test_labels, _ = opened(name, root)
    target.mkdir(parents=True)
    parts = {"train.bin": (train, labels), "test.bin": (test, test_labels)}
    if name == "cifar10":
        parts = {"test_batch.bin": parts["test.bin"]}
        for n in range(5):
            part = slice(100 * n, 100 * n + 100)
            parts[f"data_batch_{n + 1}.bin"] = (train[part], labels[part])
    for file, (images, marks) in parts.items():
        planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        columns = [marks[:, None]] if name == "cifar10" else [marks[:, None] // 5, marks[:, None]]
        (target / file).write_bytes(np.hstack([*columns, planes]).astype(np.uint8).tobytes())
    text = "\n".join(n.replace(" ", "_") for n in names) + "\n\n"
    file = {"cifar10": "batches.meta.txt", "cifar100": "fine_label_names.txt"}[name]
    (target / file).write_text(text)


@pytest.mark.parametrize("archived", [False, True])
def test_the_binary_version(published, tmp_path, archived):
    name, root = published
    folder = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}[name]
    write_binary(name, root, tmp_path / "binary" / folder)
    place = tmp_path / "binary"
    if archived:
        file = {"cifar10": "cifar-10-binary.tar.gz", "cifar100": "cifar-100-binary.tar.gz"}[name]
        place = packed(place / folder, tmp_path / "packed" / file)
    ours, theirs = opened(name, place), opened(name, root)
    assert same([ours[i] for i in (0, 1, 3, 4)], [theirs[i] for i in (0, 1, 3, 4)])
    assert ours[2][7] == theirs[2][7].replace(" ", "_")


@pytest.mark.parametrize("damage", ["cut", "empty", "other"])
def test_damaged_archives(published, tmp_path, damage):
    name, root = published
    archive = {"cifar10": "cifar-10-python.tar.gz", "cifar100": "cifar-100-python.tar.gz"}[name]
    folder = packed(root / CASES[name], tmp_path / "packed" / archive)
    if damage == "other":
        (tmp_path / "note.txt").write_text("hello")
        packed(tmp_path / "note.txt", folder / archive)
    else:
        content = (folder / archive).read_bytes()
        (folder / archive).write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(ValueError, match=archive.replace(".", r"\.")):
        CifarReader(name).search_images(folder, 32)


def test_binary_files_of_another_size(published, tmp_path):
    name, root = published
    folder = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}[name]
    write_binary(name, root, tmp_path / folder)
    file = next(f for f in (tmp_path / folder).iterdir() if "test" in f.name)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"does not hold the published {name}"):
        open_cifar(find_batches(tmp_path, name), name, test=True)
