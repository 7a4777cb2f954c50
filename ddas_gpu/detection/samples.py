"""A few training images with their boxes, as arrays that a file can hold."""

from __future__ import annotations

import numpy as np

from ddas_gpu.detection.sets import Examples


def sample_arrays(examples: Examples, class_names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """For samples.npz: images of different sizes fill the corner of arrays of one size.

    images (N, H, W, 3), sizes (N, 2), names (N,); boxes (M, 4) and owners (M,), the image of each.
    """
    sizes = np.array([image.shape[:2] for image in examples.images])
    images = np.zeros((len(sizes), *sizes.max(0), 3), np.uint8)
    for place, image in zip(images, examples.images, strict=True):
        place[: image.shape[0], : image.shape[1]] = image
    return {
        "images": images,
        "sizes": sizes,
        "names": np.array([_caption(labels, class_names) for labels in examples.labels]),
        "boxes": np.concatenate(examples.boxes),
        "owners": np.repeat(np.arange(len(sizes)), [len(boxes) for boxes in examples.boxes]),
    }


def _caption(labels: np.ndarray, class_names: tuple[str, ...]) -> str:
    """Such as "person, dog": what there is most of comes first."""
    kinds, counts = np.unique(labels, return_counts=True)
    kinds = kinds[np.argsort(-counts, kind="stable")]
    return ", ".join(class_names[kind] for kind in kinds[:3]) or "nothing"
