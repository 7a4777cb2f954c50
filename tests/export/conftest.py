from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="session")
def photographs(imagenet_images) -> np.ndarray:
    """Parts of real photographs, (6, 80, 80, 3)."""
    return np.stack([image[:80, :80] for image in imagenet_images])
