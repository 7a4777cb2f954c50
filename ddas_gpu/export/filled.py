"""Our own op inside another library's policy, with the fill value of the space."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddas_gpu.ops.box_policies import BoxStep, run_steps
from ddas_gpu.ops.table import Argument, find
from ddas_gpu.streams import draw


def apply_filled(
    images: list[Any], op: str, arguments: list[Argument], fill: int, seed: int = 0
) -> list[Any]:
    """Apply an op to images of any sizes, each with its own argument."""
    declared = find(op)
    positions = draw(seed, np.arange(len(images)), 1).position[:, 0]
    steps = [
        [BoxStep(declared, declared.check(argument), position, None)]
        for argument, position in zip(arguments, positions, strict=True)
    ]
    return run_steps(images, steps, fill)
