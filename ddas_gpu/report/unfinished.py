"""The schedule of a search that is not finished: the epochs in its checkpoint."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ddas_gpu.data.catalog import CATALOG, CUSTOM, find_data
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import SearchSpace


def schedule_so_far(folder: Path, settings: dict[str, Any]) -> PolicySchedule:
    """Return p_tp and p_o of the finished epochs, as the policy file would have them."""
    history, known_by = _history(folder / "checkpoint.pt")
    if not history:
        raise ValueError(f"the search in {folder} has no finished epoch yet: nothing to draw")
    p_tp, p_o = zip(*history, strict=True)
    space = _space(folder, settings, known_by)
    schedule = PolicySchedule(space, np.array(p_tp), np.stack(p_o), settings)
    size, share = settings.get("smoothing"), settings.get("uniform_share")
    if isinstance(share, float) and 0 <= share <= 1:
        schedule = schedule.with_uniform(share)
    return schedule.smoothed(size) if isinstance(size, int) and size > 0 else schedule


def _history(path: Path) -> tuple[list[tuple[float, np.ndarray]], str | None]:
    """Return (p_tp, p_o) of each epoch, and what the search space is known by."""
    import torch  # slow to import

    if not path.exists():
        return [], None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        history = [(float(p_tp), p_o.numpy()) for p_tp, p_o in state["search"]["history"]]
        return history, state["search"].get("identity", {}).get("search space")
    # torch.load raises whatever the damaged bytes lead it to
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} is not the checkpoint of a search: {reason}") from None


def _space(folder: Path, settings: dict[str, Any], known_by: str | None) -> SearchSpace:
    """Return the space of a search from its settings; only a finished policy contains it."""
    try:
        if settings["space"] is not None:
            own = SearchSpace.load(settings["space"])
            return SearchSpace(own.candidates, settings["depth"], own.scale, own.fill)
        spec = find_data(settings["data"])
        shape = settings["image_size"], settings["levels"], settings["depth"]
        if spec is CUSTOM:
            return _of_a_call(shape, known_by)
        sized = spec.sanity_space if settings["sanity_check"] else spec.space
        return sized.at(*shape)
    except (KeyError, TypeError, OSError, ValueError) as error:
        raise ValueError(f"{folder}: its search space cannot be read again: {error}") from None


def _of_a_call(shape: tuple[Any, ...], known_by: str | None) -> SearchSpace:
    """Return the preset that `search_policy` was called with."""
    for spec in CATALOG.values():
        for sized in (spec.space, spec.sanity_space):
            with suppress(ValueError):  # a preset that needs other levels
                space = sized.at(*shape)
                if space.identity() == known_by:
                    return space
    raise ValueError("search_policy was given a space of its own; finish the search to see it")
