"""A few training images for the report."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch

from ddas_gpu.detection.samples import sample_arrays

SAMPLES = "samples.npz"


def sample_file(images: Any, count: int = 8) -> bytes:
    """Return samples.npz: up to `count` clean training images, evenly spread over the set."""
    indices = np.linspace(0, len(images) - 1, min(count, len(images))).astype(int)
    batch = images.batch(indices, np.random.default_rng(0))
    if isinstance(batch, tuple):  # with boxes
        arrays = sample_arrays(batch, images.class_names)
    else:
        labels = images.labels[indices]
        names = np.array([images.class_names[label] for label in labels])
        arrays = {"images": torch.as_tensor(batch).cpu(), "labels": labels, "names": names}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()
