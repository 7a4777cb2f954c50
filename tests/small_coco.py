"""A data set in COCO's layout with a few small images, for tests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

CATEGORIES = ({"id": 1, "name": "square"}, {"id": 5, "name": "bar"})


def write_split(
    root: Path, split: str, count: int, *, boxes: int = 2, categories=CATEGORIES, seed: int = 0
) -> Path:
    """Photographs of noise, 48 × 32 pixels, each with bright boxes; the last one has none."""
    random = np.random.default_rng([seed, len(split)])
    images, annotations = [], []
    (root / split).mkdir(parents=True)
    for number in range(1, count + 1):
        pixels = random.integers(0, 100, (32, 48, 3), dtype=np.uint8)
        for _ in range(boxes if number < count else 0):
            kind = random.choice([category["id"] for category in categories])
            x, y = (int(v) for v in random.integers(0, 20, 2))
            width, height = (12, 10) if kind == 1 else (25, 8)
            pixels[y : y + height, x : x + width] = 255 if kind == 1 else (0, 200, 0)
            box = {"image_id": number, "category_id": int(kind), "bbox": [x, y, width, height]}
            annotations.append({"id": len(annotations) + 1, **box})
        name = f"{number:03}.png"
        Image.fromarray(pixels).save(root / split / name)
        images.append({"id": number, "file_name": name, "width": 48, "height": 32})
    content = {"images": images, "annotations": annotations, "categories": list(categories)}
    (root / "annotations").mkdir(exist_ok=True)
    (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
    return root


def write_coco(root: Path, train: int = 9, val: int = 5) -> Path:
    write_split(root, "train2017", train)
    return write_split(root, "val2017", val, seed=1)
