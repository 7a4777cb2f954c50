"""The preset spaces by name, for images of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def shape_of(space: Path) -> dict[str, Any]:
    """Return the levels and the depth of --space, the name of a preset or a file."""
    if space.is_file() and str(space) not in SIZED:
        return {"levels": (), "depth": SearchSpace.load(space).depth}
    if not space.suffix:
        return preset_shape(str(space))
    raise ValueError(f"--space {space}: there is no such file")


def preset_shape(name: str) -> dict[str, Any]:
    """Return the levels and the depth of a preset."""
    return {"levels": find_space(name).levels, "depth": preset_depth(name)}


def sized_space(name: str, image_size: int) -> SearchSpace:
    """Return a preset with its shifts and holes in proportion to the images."""
    return find_space(name).at(image_size, depth=preset_depth(name))
