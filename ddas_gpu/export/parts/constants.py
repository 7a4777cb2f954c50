"""What differs from policy to policy; these values do nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Argument = Any  # a number, or None for an op without one
OPS: dict[str, Callable[..., Any]] = {}  # Pillow functions
CANDIDATES: list[tuple[str, Argument]] = [("Identity", None)]
SIGNED: list[str] = []
CENTRED: list[str] = []
FILLED: list[str] = []
DEPTH = 1
FILL = 0
P_TP = [0.0]
P_O = [[1.0]]
