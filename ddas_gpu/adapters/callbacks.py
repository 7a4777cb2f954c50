"""What the callbacks of all trainers have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def require_set_epoch(policies: Iterable[Any]) -> None:
    """Raise a TypeError for an object without `set_epoch`, such as the path of a policy."""
    for policy in policies:
        if not callable(getattr(policy, "set_epoch", None)):
            raise TypeError(
                f"a {type(policy).__name__} has no set_epoch: give a BatchPolicy, a "
                "PolicyTransform, a loader or a pipeline"
            )
