"""Reading COCO: what is made of its annotations, and what is said about wrong ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ddas_gpu.data.coco import open_coco

CATEGORIES = [
    {"id": 90, "name": "toothbrush"},
    {"id": 3, "name": "car"},
    {"id": 7, "name": "train"},
]


def write(root: Path, content: Any, files: tuple[str, ...] = ("a.png", "b.png")) -> Path:
    """A small data set of images of 40 × 30 pixels."""
    (root / "annotations").mkdir()
    text = content if isinstance(content, str) else json.dumps(content)
    (root / "annotations" / "instances_train2017.json").write_text(text)
    (root / "train2017").mkdir()
    for name in files:
        Image.new("RGB", (40, 30), "red").save(root / "train2017" / name)
    return root


def instances(*annotations: dict[str, Any], **changes: Any) -> dict[str, Any]:
    images = [
        {"id": 12, "file_name": "b.png", "width": 40, "height": 30},
        {"id": 5, "file_name": "a.png", "width": 40, "height": 30},
    ]
    numbered = [{"id": i, **a} for i, a in enumerate(annotations, 1)]
    return {"images": images, "annotations": numbered, "categories": CATEGORIES} | changes


def sized(width: Any, height: Any) -> dict[str, Any]:
    return {"id": 5, "file_name": "a.png", "width": width, "height": height}


def box(x: float, y: float, w: float, h: float, image: int = 5, category: int = 3, **more) -> dict:
    return {"image_id": image, "category_id": category, "bbox": [x, y, w, h], **more}


def test_the_real_thing(coco_root):
    """Held against the file itself, read by other means."""
    coco = open_coco(coco_root)
    content = json.loads((coco_root / "annotations" / "instances_train2017.json").read_text())
    assert len(coco.images) == 128 and len(coco.class_names) == 80
    assert coco.class_names[0] == "person" and coco.class_names[-1] == "toothbrush"
    assert sum(len(image.boxes) for image in coco.images) == len(content["annotations"])
    for image, entry in zip(coco.images, content["images"], strict=True):
        assert image.file.name == entry["file_name"]
    names = {c["id"]: c["name"] for c in content["categories"]}
    last = content["annotations"][-1]
    mine = next(i for i in coco.images if int(i.file.stem) == last["image_id"])
    x, y, w, h = last["bbox"]
    place = np.flatnonzero(np.isclose(mine.boxes, [x, y, x + w, y + h]).all(1))
    assert [coco.class_names[mine.labels[p]] for p in place] == [names[last["category_id"]]]
    for image in coco.images[:4]:
        pixels = image.read()
        assert pixels.shape == (image.height, image.width, 3) and pixels.dtype == np.uint8
    assert len(open_coco(coco_root, "val2017").images) == 128


def test_category_ids_with_holes_become_labels_in_their_order(tmp_path):
    boxes = [box(1, 1, 5, 5, category=kind) for kind in (90, 3, 7)]
    coco = open_coco(write(tmp_path, instances(*boxes)))
    assert coco.class_names == ("car", "train", "toothbrush")
    assert coco.images[0].labels.tolist() == [2, 0, 1]


def test_images_are_in_the_order_of_their_ids_with_their_own_boxes(tmp_path):
    coco = open_coco(write(tmp_path, instances(box(1, 2, 3, 4, image=12), box(0, 0, 9, 9))))
    assert [image.file.name for image in coco.images] == ["a.png", "b.png"]
    assert coco.images[0].boxes.tolist() == [[0, 0, 9, 9]]
    assert coco.images[1].boxes.tolist() == [[1, 2, 4, 6]]


def test_boxes_are_clipped_and_those_without_area_dropped(tmp_path):
    boxes = [
        box(-5, 20, 15, 50),  # sticks out on two sides
        box(50, 10, 5, 5),  # outside
        box(10, 10, 0, 5),  # of no width
        box(20, 10, -3, 5),  # inside out
        box(40, 0, 5, 30),  # touches the edge from outside
    ]
    coco = open_coco(write(tmp_path, instances(*boxes)))
    assert coco.images[0].boxes.tolist() == [[0, 20, 10, 30]]
    assert coco.images[0].labels.tolist() == [0]


def test_images_without_boxes_stay_unless_told(tmp_path):
    root = write(tmp_path, instances(box(1, 1, 5, 5), box(1, 1, 5, 5, image=12, iscrowd=1)))
    assert len(open_coco(root).images) == 2
    kept = open_coco(root).without_empty().images
    assert [image.file.name for image in kept] == ["a.png"]  # a crowd is nothing to learn from


def test_crowds_are_kept_apart(tmp_path):
    boxes = [box(0, 0, 30, 30, iscrowd=1, area=500.0), box(1, 1, 5, 4, category=7)]
    image = open_coco(write(tmp_path, instances(*boxes))).images[0]
    assert image.crowd.tolist() == [True, False]
    assert image.areas.tolist() == [500.0, 20.0]  # the box's, where the file tells none
    objects, labels = image.objects()
    assert objects.tolist() == [[1, 1, 6, 5]] and labels.tolist() == [1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", "not in COCO's format of instances: the content must be"),
        ('{"images": {}}', "images must be a list"),
        ({"images": [], "annotations": []}, "has no 'categories'"),
        (instances(images=[{"id": 5}]), r"images\[0\] has no 'file_name'"),
        (instances({"image_id": 5, "caption": "a car"}), r"annotations\[0\] has no 'category_id'"),
        (instances(categories=["car"]), r"categories\[0\] must be an object"),
        (instances(box(0, 0, 5, 5, image=99)), "annotation 1 is of image 99, which is not among"),
        (instances(box(0, 0, 5, 5, category=4)), "annotation 1 is of category 4, which is not"),
        (instances(box(0, 0, 5, float("nan"))), "annotation 1 needs a bbox of four numbers"),
        (instances(box(0, 0, 5, 5) | {"bbox": [1, 2]}), "not \\[1, 2\\]"),
        (instances(box(0, 0, 5, 5) | {"bbox": None}), "not None"),
        (instances(images=[]), "has no images"),
        (instances(images=[sized(0, 30)]), "image a.png needs a height and .* not 30 and 0"),
        (
            instances(images=[sized("40", 30)]),
            "width must be a finite number, not '40'",
        ),
    ],
)
def test_files_of_another_format(content, said, tmp_path):
    with pytest.raises(ValueError, match=said) as caught:
        open_coco(write(tmp_path, content))
    assert "instances_train2017.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_annotations_that_name_a_missing_image(tmp_path):
    root = write(tmp_path, instances(), files=("a.png",))
    with pytest.raises(ValueError, match="names the image b.png, not in .*train2017"):
        open_coco(root)


def test_a_root_of_another_layout(tmp_path):
    with pytest.raises(ValueError, match="no COCO at .*instances_train2017.json is missing"):
        open_coco(tmp_path)
    write(tmp_path, instances())
    with pytest.raises(ValueError, match="instances_val2017.json is missing; it must hold"):
        open_coco(tmp_path, "val2017")


def test_images_that_are_broken_or_of_another_size(tmp_path):
    coco = open_coco(write(tmp_path, instances()))
    (tmp_path / "train2017" / "a.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="cannot read the image .*a.png"):
        coco.images[0].read()
    Image.new("RGB", (41, 30)).save(tmp_path / "train2017" / "a.png")
    with pytest.raises(ValueError, match="has 40 × 30 pixels, but it has 41 × 30"):
        coco.images[0].read()


def test_photographs_annotated_the_way_the_camera_was_held(tmp_path):
    """Pixels as stored if they have the annotated size, else as the EXIF tag turns them."""
    coco = open_coco(write(tmp_path, instances()))
    tag = Image.Exif()
    tag[0x0112] = 6  # turn by a quarter to be upright
    stored = Image.new("RGB", (40, 30), "blue")
    stored.save(coco.images[0].file, exif=tag)
    assert coco.images[0].read().shape == (30, 40, 3)
    stored.transpose(Image.Transpose.ROTATE_90).save(coco.images[0].file, exif=tag)
    assert coco.images[0].read().shape == (30, 40, 3)


def test_fingerprints_tell_sets_apart(coco_root):
    whole = open_coco(coco_root)
    part = whole.subset(np.arange(len(whole) - 1))
    assert whole.fingerprint() == open_coco(coco_root).fingerprint() != part.fingerprint()
