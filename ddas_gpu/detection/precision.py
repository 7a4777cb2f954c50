"""COCO's mean average precision, computed by pycocotools."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ddas_gpu.data.coco import Annotated
from ddas_gpu.detection.predictions import Detections

# pycocotools' summary, by position.
NAMES = ("mAP", "mAP50", "mAP75", "mAP small", "mAP medium", "mAP large")


def require_pycocotools() -> None:
    """Raise a ValueError if pycocotools is not installed."""
    try:
        import pycocotools.coco  # noqa: F401
    except ImportError:
        raise ValueError(
            "COCO's mAP needs the package pycocotools: pip install 'ddas_gpu[coco]'"
        ) from None


def average_precision(
    truth: Sequence[Annotated], found: Sequence[Detections], class_names: Sequence[str]
) -> dict[str, float]:
    """Return {"mAP", "mAP50", "mAP75", "mAP small", …} of boxes in pixels of the original images.

    Detections in crowds are ignored. A number is NaN if there is nothing to find, such as no small
    box.
    """
    require_pycocotools()
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    if len(truth) != len(found):
        raise ValueError(f"detections of {len(found)} images for {len(truth)} annotated ones")
    results = [_result(i, *one) for i, d in enumerate(found, 1) for one in _rows(d)]
    if not results:
        return dict.fromkeys(NAMES, 0.0)
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints
        reference = COCO()
        reference.dataset = _dataset(truth, class_names)
        reference.createIndex()
        evaluation = COCOeval(reference, reference.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    values = zip(NAMES, evaluation.stats, strict=False)
    return {name: float(value) if value >= 0 else float("nan") for name, value in values}


def _rows(found: Detections) -> Iterator[tuple[np.ndarray, float, int]]:
    return zip(found.boxes, found.scores, found.labels, strict=True)


def _result(image: int, box: np.ndarray, score: float, label: int) -> dict[str, Any]:
    return {
        "image_id": image,
        "category_id": int(label) + 1,
        "bbox": _with_size(box),
        "score": float(score),
    }


def _with_size(box: np.ndarray) -> list[float]:
    """Return COCO's x, y, width, height."""
    x0, y0, x1, y1 = map(float, box)
    return [x0, y0, x1 - x0, y1 - y0]


def _dataset(truth: Sequence[Annotated], class_names: Sequence[str]) -> dict[str, Any]:
    """Return the truth in COCO's format, images and categories counted from 1."""
    annotations: list[dict[str, Any]] = []
    for number, image in enumerate(truth, 1):
        columns = (image.boxes, image.labels, image.areas, image.crowd)
        for box, label, area, crowd in zip(*columns, strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1,  # 0 would mean "no match" in pycocotools
                    "image_id": number,
                    "category_id": int(label) + 1,
                    "bbox": _with_size(box),
                    "area": float(area),
                    "iscrowd": int(crowd),
                }
            )
    return {
        "info": {},
        "images": [{"id": number} for number in range(1, len(truth) + 1)],
        "categories": [{"id": i, "name": name} for i, name in enumerate(class_names, 1)],
        "annotations": annotations,
    }
