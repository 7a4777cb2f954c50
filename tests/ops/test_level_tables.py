"""The arguments in docs/ops.md are enough to replay a policy by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ddas_gpu.ops import OPS, apply_op, augment
from ddas_gpu.ops.__main__ import level_section, level_table
from ddas_gpu.space import PRESETS, SearchSpace


def listed(space: SearchSpace) -> dict[tuple[str, float], str]:
    """{(op, level): argument} as the page has it."""
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in level_table(space).splitlines()
    )
    levels = [float(name.removeprefix("level ")) for name in head[1:]]
    return {
        (op, level): text for op, *cells in rows for level, text in zip(levels, cells, strict=True)
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_every_candidate_is_listed(preset):
    space = SearchSpace.preset(preset)
    assert set(listed(space)) == {(c.op, c.level) for c in space if c.level is not None}
    assert re.search(rf"\*\*.*\b{preset}\b.*\*\*: {len(space)} candidates", level_section())


@pytest.mark.parametrize("preset", ["cifar", "imagenet", "sanity", "digits"])
def test_the_written_argument_gives_the_same_bytes(preset):
    space = SearchSpace.preset(preset)
    images = np.random.default_rng(0).integers(0, 256, (8, 40, 40, 3), dtype=np.uint8)
    for (op, level), text in listed(space).items():
        if OPS[op].centred:
            continue
        index = [(c.op, c.level) for c in space].index((op, level))
        argument = float(text.lstrip("±"))
        both = [
            apply_op(images, op, sign * argument) for sign in ((1, -1) if "±" in text else (1,))
        ]
        made = augment(images, [index], space, seed=1)
        for image, *ways in zip(made, *both, strict=True):
            assert any((image == way).all() for way in ways), (op, level)
