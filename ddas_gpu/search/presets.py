"""The preset spaces by name, for images of any size."""

from __future__ import annotations

from ddas_gpu.data.catalog import CATALOG, SizedSpace
from ddas_gpu.space import PRESETS, SearchSpace

SIZED = {
    sized.name: sized for spec in CATALOG.values() for sized in (spec.space, spec.sanity_space)
}


def find_space(name: str) -> SizedSpace:
    """Return a preset and the image size that it is meant for."""
    if name not in SIZED:
        raise ValueError(f"unknown space {name!r}; there are: {', '.join(SIZED)}")
    return SIZED[name]


def preset_depth(name: str) -> int:
    """Return the number of ops per policy of a preset."""
    return PRESETS[name].get("depth", 2)


def sized_space(name: str, image_size: int) -> SearchSpace:
    """Return a preset with its shifts and holes in proportion to the images."""
    return find_space(name).at(image_size, depth=preset_depth(name))
