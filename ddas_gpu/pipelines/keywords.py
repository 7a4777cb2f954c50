"""Answers to misspelt keywords and to numbers in other units."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


def require_known(function: str, given: Iterable[str], *known: Callable[..., Any]) -> None:
    """Raise a TypeError that names the nearest keyword of the functions `known`."""
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {
        name
        for each in known
        for name, parameter in inspect.signature(each).parameters.items()
        if parameter.kind in plain
    } - {"self"}
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names)}"
            raise TypeError(f"{function} has no keyword {name!r}; {hint}")


def require_levels(mean: Any, std: Any) -> None:
    """Raise a ValueError if mean or std are those of images in [0, 1], as in torchvision.

    Means of 0 and deviations of 1, which leave the levels as they are, are accepted.
    """
    for name, values, in_fractions in (
        ("mean", mean, lambda array: array.max() <= 1 and array.max() > 0),
        ("std", std, lambda array: array.max() < 1),
    ):
        if values is None:
            continue
        array = np.asarray(values, np.float64)
        if array.shape == (3,) and array.min() >= 0 and in_fractions(array):
            raise ValueError(
                f"{name} is given in levels of 0 … 255, but {values!r} looks like that of images "
                "in [0, 1]: multiply it by 255"
            )
