"""COCO, or your own boxes in its format: images in a folder, annotations in one JSON file.

How the annotations are read:

- category ids, which have holes, become labels 0, 1, … in the order of the ids;
- boxes become corners, clipped to the image; what is left without area is dropped;
- crowd boxes (`iscrowd`) are kept apart: nothing to learn from, nothing to miss in evaluation;
- images without a box stay, because a detector must learn where nothing is.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ddas_gpu.data.decoding import decode
from ddas_gpu.data.sources import checksum_of
from ddas_gpu.schema import check, read_json, short

LAYOUT = (
    "annotations/instances_train2017.json and train2017/ with the images it names "
    "(val2017 likewise)"
)


@dataclass(frozen=True)
class Annotated:
    """An image that need not be in memory, and what is in it."""

    file: Path
    height: int
    width: int
    boxes: np.ndarray  # (n, 4) float64, x0 y0 x1 y1 in pixels
    labels: np.ndarray  # (n,) int64
    areas: np.ndarray  # (n,) float64: of the object, not of its box, where the file has it
    crowd: np.ndarray  # (n,) bool: many objects of one class in one box
    id: int | None = None  # of the image, in the annotations

    def objects(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the boxes and labels to learn from: without crowds."""
        return self.boxes[~self.crowd], self.labels[~self.crowd]

    def read(self) -> np.ndarray:
        """Return the image, uint8 (H, W, 3) RGB, at the size that its boxes refer to."""
        image = decode(self.file, (self.width, self.height), "annotations")
        if image.size != (self.width, self.height):
            raise ValueError(
                f"the annotations say that {self.file} has {self.width} × {self.height} pixels, "
                f"but it has {image.size[0]} × {image.size[1]}"
            )
        return np.asarray(image)


@dataclass(frozen=True)
class Coco:
    """One split of COCO; its images lie on disk."""

    images: Sequence[Annotated]
    class_names: tuple[str, ...] = ()
    category_ids: tuple[int, ...] = ()  # of each class, in the annotations

    def __len__(self) -> int:
        return len(self.images)

    @property
    def files(self) -> list[Path]:
        return [image.file for image in self.images]

    def subset(self, indices: np.ndarray) -> Coco:
        return replace(self, images=[self.images[index] for index in indices])

    def without_empty(self) -> Coco:
        """Return the images that have a box to learn from."""
        return replace(self, images=[i for i in self.images if len(i.objects()[0])])

    def members(self) -> tuple[str, ...]:
        return tuple(file.name for file in self.files)

    def fingerprint(self) -> int:
        """Return a checksum of names, sizes and boxes."""
        checksum = 0
        for image in self.images:
            facts = f"{image.file.name} {image.width} {image.height} {image.file.stat().st_size}"
            checksum = zlib.crc32(facts.encode(errors="surrogateescape"), checksum)
            for array in image.objects():
                checksum = checksum_of(array, checksum)
        return checksum


class CocoReader:
    """The `Reader` of COCO's layout: train2017 to search and train on, val2017 to test on."""

    layout = LAYOUT

    def search_images(self, root: Path, size: int) -> Coco:
        return open_coco(root, "train2017")

    def training_images(self, root: Path, test_root: Path | None, size: int) -> tuple[Coco, Coco]:
        return open_coco(root, "train2017"), open_coco(test_root or root, "val2017")


def open_coco(root: Path, split: str = "train2017") -> Coco:
    """Open the images of root/split with their boxes, in the order of their ids."""
    folder, path = root / split, root / "annotations" / f"instances_{split}.json"
    for needed, there in ((path, path.is_file()), (folder, folder.is_dir())):
        if not there:
            raise ValueError(f"no COCO at {root}: {needed} is missing; it must hold {LAYOUT}")
    images, annotations, categories = _read(path)
    kinds = {category["id"]: category["name"] for category in categories}
    order = sorted(kinds, key=_rank)
    label_of = {kind: label for label, kind in enumerate(order)}
    rows: dict[Any, list[tuple]] = {image["id"]: [] for image in images}
    for annotation in annotations:
        where = f"{path}: annotation {short(annotation.get('id'))}"
        if annotation["image_id"] not in rows:
            raise ValueError(
                f"{where} is of image {annotation['image_id']}, which is not among its images"
            )
        if annotation["category_id"] not in label_of:
            raise ValueError(
                f"{where} is of category {annotation['category_id']}, "
                "which is not among its categories"
            )
        rows[annotation["image_id"]].append(_row(annotation, label_of, where))
    present = {file.name for file in folder.iterdir()}
    found = []
    for image in sorted(images, key=lambda image: _rank(image["id"])):
        if image["file_name"] not in present:
            raise ValueError(f"{path} names the image {image['file_name']}, not in {folder}")
        size = _size(image, f"{path}: image {image['file_name']}")
        made = _annotated(folder / image["file_name"], size, rows[image["id"]])
        found.append(replace(made, id=image["id"] if isinstance(image["id"], int) else None))
    if not found:
        raise ValueError(f"{path} has no images")
    numbers = tuple(order) if all(isinstance(kind, int) for kind in order) else ()
    return Coco(found, tuple(str(kinds[kind]) for kind in order), numbers)


_ID = int | str
SCHEMA = {
    "images": [{"id": _ID, "file_name": str, "width": float, "height": float}],
    "annotations": [{"image_id": _ID, "category_id": _ID, "area?": float, "iscrowd?": int | bool}],
    "categories": [{"id": _ID, "name": _ID}],
}


def _read(path: Path) -> tuple[list[dict], list[dict], list[dict]]:
    content = read_json(path)
    try:
        check(content, SCHEMA)
    except ValueError as error:
        raise ValueError(f"{path} is not in COCO's format of instances: {error}") from None
    for part in ("images", "categories"):
        (most, count), *_ = [*Counter(e["id"] for e in content[part]).most_common(1), (None, 0)]
        if count > 1:
            raise ValueError(f"{path} has the id {short(most)} {count} times in its {part}")
    return content["images"], content["annotations"], content["categories"]


def _rank(identifier: int | str) -> tuple[bool, int | str]:
    """Order numbers before text: the two cannot be compared."""
    return isinstance(identifier, str), identifier


def _row(annotation: dict[str, Any], label_of: dict[Any, int], where: str) -> tuple:
    """Return x, y, width, height, label, area, crowd."""
    try:
        check(annotation.get("bbox"), tuple[float, float, float, float], "bbox")
    except ValueError:
        raise ValueError(
            f"{where} needs a bbox of four numbers x, y, width, height, "
            f"not {short(annotation.get('bbox'))}"
        ) from None
    x, y, width, height = (float(number) for number in annotation["bbox"])
    area = float(annotation.get("area", width * height))
    label = label_of[annotation["category_id"]]
    return x, y, width, height, label, area, bool(annotation.get("iscrowd", 0))


def _size(image: dict[str, Any], where: str) -> tuple[int, int]:
    """Return the height and width."""
    sides = image["height"], image["width"]
    if not all(1 <= side < 2**31 for side in sides):
        raise ValueError(
            f"{where} needs a height and a width of 1 pixel or more, "
            f"not {sides[0]!r} and {sides[1]!r}"
        )
    return int(sides[0]), int(sides[1])


def _annotated(file: Path, size: tuple[int, int], rows: list[tuple]) -> Annotated:
    table = np.array(rows, dtype=np.float64).reshape(-1, 7)
    height, width = size
    corners = np.concatenate([table[:, :2], table[:, :2] + table[:, 2:4]], axis=1)
    boxes = np.clip(corners, 0, [width, height, width, height])
    real = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    boxes, table = boxes[real], table[real]
    labels, areas, crowd = table[:, 4].astype(np.int64), table[:, 5], table[:, 6].astype(bool)
    return Annotated(file, height, width, boxes, labels, areas, crowd)
