"""The schedule of a search that is not finished: the epochs in its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ddas_gpu.data.catalog import find_data
from ddas_gpu.policy import PolicySchedule
from ddas_gpu.space import SearchSpace


def schedule_so_far(folder: Path, settings: dict[str, Any]) -> PolicySchedule:
    """Return p_tp and p_o of the finished epochs, as the policy file would have them."""
    history = _history(folder / "checkpoint.pt")
    if not history:
        raise ValueError(f"the search in {folder} has no finished epoch yet: nothing to draw")
    p_tp, p_o = zip(*history, strict=True)
    schedule = PolicySchedule(_space(folder, settings), np.array(p_tp), np.stack(p_o), settings)
    size, share = settings.get("smoothing"), settings.get("uniform_share")
    if isinstance(share, float) and 0 <= share <= 1:
        schedule = schedule.with_uniform(share)
    return schedule.smoothed(size) if isinstance(size, int) and size > 0 else schedule


def _history(path: Path) -> list[tuple[float, np.ndarray]]:
    import torch  # slow to import

    if not path.exists():
        return []
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return [(float(p_tp), p_o.numpy()) for p_tp, p_o in state["search"]["history"]]
    # torch.load raises whatever the damaged bytes lead it to
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} is not the checkpoint of a search: {reason}") from None


def _space(folder: Path, settings: dict[str, Any]) -> SearchSpace:
    """Return the space of a search from its settings; only a finished policy contains it."""
    try:
        if settings["space"] is not None:
            own = SearchSpace.load(settings["space"])
            return SearchSpace(own.candidates, settings["depth"], own.scale, own.fill)
        spec = find_data(settings["data"])
        sized = spec.sanity_space if settings["sanity_check"] else spec.space
        return sized.at(settings["image_size"], settings["levels"], settings["depth"])
    except (KeyError, TypeError, OSError, ValueError) as error:
        raise ValueError(f"{folder}: its search space cannot be read again: {error}") from None
